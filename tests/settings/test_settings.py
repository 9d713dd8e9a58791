"""Settings: which source wins, what is refused and how it is told, and that no secret is ever shown."""

from __future__ import annotations

import contextlib
import json
import logging
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from grns.cli import root
from grns.cli.admin import origins, redacted
from grns.cli.group import CliState
from grns.errors import GrnsError, SettingsError
from grns.settings import Settings, load, misspelt, reveal
from grns.telemetry import log
from grns.telemetry.log_throttle import LogThrottle
from grns.telemetry.service_signals import TickFailed, TransportChanged, TransportFailing
from grns.telemetry.task_signals import AttemptFailed

CANARY = "canary-7f3a"


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No file and no variable of the developer's takes part."""

    for name in [name for name in os.environ if name.startswith("GRNS_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def announce(directory: Path, text: str) -> None:
    """Write what `grns dev` writes."""
    (directory / ".grns").mkdir()
    (directory / ".grns/dev.toml").write_text(text)


# ---------------------------------------------------------------- which source wins


def test_the_first_source_that_has_a_value_wins(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load().lease_seconds == 15
    announce(alone, "lease_seconds = 21")
    assert load().lease_seconds == 21
    (alone / "grns.toml").write_text("lease_seconds = 22")
    assert load().lease_seconds == 22
    (alone / "lease").write_text(" 23\n")
    monkeypatch.setenv("GRNS_LEASE_SECONDS_FILE", str(alone / "lease"))
    assert load().lease_seconds == 23
    monkeypatch.setenv("GRNS_LEASE_SECONDS", "24")
    assert load().lease_seconds == 24
    assert load(lease_seconds=25).lease_seconds == 25
    assert load(lease_seconds=None).lease_seconds == 24


def test_files_in_directories_above_are_read_nearest_first(
    alone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    below = alone / "a/b"
    below.mkdir(parents=True)
    announce(alone, "lease_seconds = 21\nconcurrency = 3\nclaim_batch = 4")
    monkeypatch.chdir(below)
    assert load().lease_seconds == 21
    assert origins(load())["lease_seconds"] == f"file {alone}/.grns/dev.toml"
    (alone / "grns.toml").write_text("lease_seconds = 22\nconcurrency = 5")
    assert (load().lease_seconds, load().claim_batch) == (22, 4)
    (alone / "a/grns.toml").write_text("lease_seconds = 23")
    assert (load().lease_seconds, load().concurrency) == (23, 3), "one file of each name"
    announce(below, "lease_seconds = 24")
    assert (load().lease_seconds, load().concurrency) == (24, 10)
    (alone / "a/grns.toml").write_text("lease_seconds = 0")
    announce(alone / "a", "lease_seconds = 25")
    monkeypatch.chdir(alone / "a")
    with pytest.raises(SettingsError, match=r"^grns.toml: lease_seconds: "):
        load()


def test_files_above_of_other_users_are_ignored(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (alone / "grns.toml").write_text("lease_seconds = 22")
    (alone / "below").mkdir()
    monkeypatch.setattr(os, "getuid", lambda: 4711)
    if (alone / "grns.toml").stat().st_uid == 0:
        os.chown(alone / "grns.toml", 4712, -1)
    monkeypatch.chdir(alone / "below")
    assert load().lease_seconds == 15


@pytest.mark.parametrize("name", ["grns.toml", ".grns/dev.toml"])
@pytest.mark.parametrize("excess", ["another owner", "all may write"])
def test_file_here_that_others_may_have_written_is_not_read(
    alone: Path, monkeypatch: pytest.MonkeyPatch, name: str, excess: str
) -> None:
    """L11: the working directory's file named the servers whoever owned it."""
    announce(alone, "lease_seconds = 22")
    (alone / ".grns/dev.toml").rename(alone / name)
    assert load().lease_seconds == 22
    assert misspelt() == []
    if excess == "all may write":
        (alone / name).chmod(0o666)
    else:
        monkeypatch.setattr(os, "getuid", lambda: 4711)
        if (alone / name).stat().st_uid == 0:
            os.chown(alone / name, 4712, -1)
    assert load().lease_seconds == 15
    assert misspelt() == [f"{name} is not read: it belongs to another user, or every user may write to it"]


def test_error_names_the_source_of_the_value(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    announce(alone, 'nats_url = "nats://127.0.0.1:1"')
    (alone / "grns.toml").write_text("concurrency = 3")
    (alone / "url").write_text("postgresql://db/app")
    monkeypatch.setenv("GRNS_DATABASE_URL_FILE", str(alone / "url"))
    monkeypatch.setenv("GRNS_LEASE_SECONDS", "24")
    monkeypatch.setenv("GRNS_WORKSPACE", "acme")
    found = origins(load(), flags=frozenset({"workspace"}))
    assert found["nats_url"] == "file .grns/dev.toml"
    assert found["concurrency"] == "file grns.toml"
    assert found["database_url"] == "env GRNS_DATABASE_URL_FILE"
    assert found["lease_seconds"] == "env GRNS_LEASE_SECONDS"
    assert found["workspace"] == "flag --workspace"
    assert found["claim_batch"] == "default"


def test_misspelt_variable_warns_with_the_right_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "GRNS_DATABASE_URL",
        "GRNS_NATS_URL_FILE",
        "GRNS_FAILPOINTS",
        "GRNS_HTTP_URL",
        "GRNS_TEST_X",
    ):
        monkeypatch.setenv(name, "")
    assert misspelt() == []
    monkeypatch.setenv("GRNS_LEASE_SECOND", "5")
    monkeypatch.setenv("GRNS_DATABSE_URL", "5")
    assert [(said.split()[0], said.split()[-1]) for said in misspelt()] == [
        ("GRNS_DATABSE_URL", "GRNS_DATABASE_URL?"),
        ("GRNS_LEASE_SECOND", "GRNS_LEASE_SECONDS?"),
    ]


def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DATABASE_URL", "NATS_URL", "LEASE_SECONDS", "DATABASE_URL_FILE"):
        monkeypatch.setenv(f"GRNS_{name}", "")
    assert load() == Settings()


def test_every_setting_can_be_given_as_text(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in load().model_dump(mode="json").items():
        if value is not None and "url" not in name:
            text = str(value).lower() if isinstance(value, bool) else str(value)
            monkeypatch.setenv(f"GRNS_{name.upper()}", text)
    assert load() == Settings()
    monkeypatch.setenv("GRNS_NATS_REPLICAS", "3")
    assert load().nats_replicas == 3


def test_every_setting_has_a_description() -> None:
    assert all(field.description for field in Settings.model_fields.values())


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lease_seconds", "0"),
        ("lease_seconds", "nan"),
        ("lease_seconds", "soon"),
        ("janitor_interval_seconds", "inf"),
        ("concurrency", "0"),
        ("concurrency", "1.5"),
        ("nats_replicas", "2"),
        ("nats_manage", "maybe"),
        ("metrics_port", "65536"),
        ("log_level", "loud"),
        ("database_url", "mysql://grns:secret@db/app"),
        ("database_url", "postgresql://grns:secret"),
        ("database_url", "postgresql://grns:sec/ret@db/app"),
        ("database_url", "postgresql://db:70000/app"),
        ("database_url", "secret"),
        ("nats_url", "http://secret@n1"),
        ("nats_url", "nats://n1:4222,n2:secret"),
        ("nats_url", ","),
    ],
)
def test_wrong_value_is_reported_with_its_place(
    name: str, value: str, alone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variable = f"GRNS_{name.upper()}"
    monkeypatch.setenv(variable, value)
    with pytest.raises(SettingsError, match=f"^{variable}: ") as refused:
        load()
    assert refused.value.__notes__ == [f"unset {variable}"]
    assert "secret" not in str(refused.value)
    monkeypatch.delenv(variable)
    (alone / "value").write_text(value)
    monkeypatch.setenv(f"{variable}_FILE", str(alone / "value"))
    with pytest.raises(SettingsError, match=f"^{variable}_FILE: "):
        load()
    monkeypatch.delenv(f"{variable}_FILE")
    (alone / "grns.toml").write_text(f'{name} = "{value}"')
    with pytest.raises(SettingsError, match=f"^grns.toml: {name}: "):
        load()


def test_workspace_that_is_not_a_token_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRNS_WORKSPACE", "a.b")
    with pytest.raises(GrnsError, match="workspace must be"):
        load()


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://db/app",
        "postgres://grns:p%2Fw@db:5432/app?sslmode=require",
        "postgresql://h1:5432,h2:5433/app",
        "postgresql://[::1]:5432/app",
        "postgresql:///app?host=/run/postgresql",
    ],
)
def test_urls_that_asyncpg_knows_are_accepted(url: str) -> None:
    assert load(database_url=url).require_database_url() == url


def test_nats_url_takes_several_servers() -> None:
    servers = load(nats_url="nats://n1:4222, tls://u:p@n2").nats_servers()
    assert servers == ["nats://n1:4222", "tls://u:p@n2"]


@pytest.mark.parametrize("text", ["x = [", "lease_secnds = 3", "\x00"])
def test_wrong_file_is_named(text: str, alone: Path) -> None:
    (alone / "grns.toml").write_text(text)
    with pytest.raises(SettingsError, match=r"^grns\.toml: ") as refused:
        load()
    assert refused.value.__notes__ == ["edit grns.toml"]


def test_unreadable_secret_file_is_named(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRNS_DATABASE_URL_FILE", str(alone / "missing"))
    with pytest.raises(SettingsError, match="GRNS_DATABASE_URL_FILE: cannot read"):
        load()


def test_missing_database_url_names_the_ways_to_set_it() -> None:
    with pytest.raises(
        SettingsError, match=r"no `grns dev` runs in this directory or above.*GRNS_DATABASE_URL="
    ):
        load().require_database_url()


# ---------------------------------------------------------------- secrets

SECRETS = [
    f"postgresql://grns:{CANARY}@db/app",
    f"postgresql://grns:{CANARY}%2F@db:5432/app?sslmode=require",
    f"postgresql://db/app?user=grns&password={CANARY}",
    f"postgresql://grns:{CANARY}/x@db/app",
    f"nats://{CANARY}@n1:4222",
    f"nats://u:{CANARY}@n1",
    f"{CANARY}",
]


@pytest.mark.parametrize("url", SECRETS)
def test_what_is_shown_of_a_url_holds_no_secret(url: str) -> None:
    assert CANARY not in redacted(url)


def test_a_url_without_a_secret_is_shown_whole() -> None:
    for url in ("postgresql://grns@db:5432/app", "nats://n1:4222"):
        assert redacted(url) == url


def test_a_comma_in_a_password_divides_no_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRNS_DATABASE_URL", f"postgresql://grns:{CANARY},{CANARY}@db/app")
    monkeypatch.setenv("GRNS_NATS_URL", f"nats://u:{CANARY}@n1,nats://n2")
    shown = CliRunner().invoke(root, ["admin", "config", "show", "-o", "jsonl"], obj=CliState())
    rows = [json.loads(line) for line in shown.output.splitlines()]
    values = {row["name"]: row["value"] for row in rows}
    assert values["database_url"] == "postgresql://grns:***@db/app"
    assert values["nats_url"] == "nats://u:***@n1, nats://n2"


@pytest.mark.parametrize("scheme", ["nats", "tls", "ws", "wss"])
def test_a_log_line_holds_no_token_of_a_broker(scheme: str, tmp_path: Path) -> None:
    urls = f"{scheme}://{CANARY}@n1:4222,{scheme}://u:{CANARY}@n2, {scheme}://n3"
    with (tmp_path / "log").open("w") as stream:
        log.configure(level="info", format="json", stream=stream)
        log.LogListener(level="info").receive(TransportFailing("broker_error", f"servers={urls}"))
    told = (tmp_path / "log").read_text()
    assert CANARY not in told
    assert f"{scheme}://***@n1:4222" in told
    assert f"{scheme}://n3" in told


def test_repr_of_settings_has_no_secrets() -> None:
    settings = load(database_url=SECRETS[0], nats_url=f"nats://u:{CANARY}@n1")
    for shown in (repr(settings), str(settings), settings.model_dump_json(), str(settings.model_dump())):
        assert CANARY not in shown
    assert load(**reveal(settings)) == settings, "but a process of our own gets them"


@pytest.mark.parametrize("url", SECRETS[:4])
def test_the_place_of_a_server_holds_no_secret(url: str) -> None:
    with contextlib.suppress(SettingsError):  # the fourth is refused
        assert load(database_url=url).database_host() in ("db/app", "db:5432/app")
    settings = load(nats_url=f"nats://u:{CANARY}@n1:4222,nats://{CANARY}@n2")
    assert settings.nats_hosts() == "n1:4222 n2"


def test_throttle_lengthens_the_pauses_of_a_lasting_problem() -> None:
    now = 0.0
    calm = LogThrottle(lambda: now)
    told = []
    while now < 120:
        if (untold := calm.due("refused")) is not None:
            told.append((now, untold))
        now += 0.125
    assert told == [(0, 0), (2, 15), (6, 31), (14, 63), (30, 127), (60, 239), (90, 239)]
    assert calm.due("another") == 0
    now += 20
    assert calm.due("refused") == 0, "it was over, and begins anew"


def test_log_drops_only_repeats(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as stream:
        log.configure(level="info", format="json", stream=stream)
        listener = log.LogListener(level="info")
        for _ in range(3):
            listener.receive(TickFailed("reaper", "gone"))
            listener.receive(TickFailed("relay", "gone"))
            listener.receive(TransportFailing("broker_error", "servers=n1"))
            listener.receive(TransportChanged("broker_disconnected", ""))
    events = [json.loads(line)["event"] for line in (tmp_path / "log").read_text().splitlines()]
    assert sorted(events) == ["tick_failed"] * 2 + ["transport"] * 4


@pytest.mark.parametrize("form", ["json", "console"])
def test_a_log_line_is_written_at_once_and_without_secrets(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces: list[bytes] = []

    def write(descriptor: int, piece: bytes) -> int:
        pieces.append(piece)
        return len(piece)

    with Path("log").open("w") as stream:
        log.configure(level="info", format=form, stream=stream)
        listener = log.LogListener(level="info")
        traced = f'Traceback:\n  connect("postgresql://u:{CANARY}@db/app")\n' + "x" * 9000
        monkeypatch.setattr(os, "write", write)
        listener.receive(AttemptFailed("gr-0", "charge", 1, "tr-0", "ValueError", "no", traced))
        listener.receive(AttemptFailed("gr-0", "charge", 1, "tr-0", "ValueError", "no", ""))
        monkeypatch.undo()
    assert len(pieces) == 2
    assert all(piece.endswith(b"\n") for piece in pieces)
    assert b"u:***@db/app" in pieces[0]
    assert CANARY.encode() not in pieces[0]
    assert b"exception" not in pieces[1]
    if form == "console":
        assert b"\nTraceback:\n" in pieces[0], "for people, in many lines"
    else:
        assert json.loads(pieces[0])["exception"].startswith("Traceback:")


@pytest.mark.parametrize("form", ["table", "json", "jsonl"])
@pytest.mark.parametrize("url", SECRETS[:3])
def test_config_show_leaves_secrets_out(form: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRNS_DATABASE_URL", url)
    monkeypatch.setenv("GRNS_NATS_URL", f"nats://u:{CANARY}@n1,nats://{CANARY}@n2")
    shown = CliRunner().invoke(root, ["admin", "config", "show", "--origin", "-o", form], obj=CliState())
    assert shown.exit_code == 0
    assert "env GRNS_DATABASE_URL" in shown.output
    assert CANARY not in shown.output


@pytest.mark.parametrize("url", SECRETS)
@pytest.mark.parametrize("name", ["database_url", "nats_url"])
def test_no_error_holds_a_secret(name: str, url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    try:
        load(**{name: url})
    except GrnsError as error:
        told = f"{error} {getattr(error, '__notes__', '')}"
        assert CANARY not in told
    assert CANARY not in caplog.text


@pytest.mark.parametrize(
    ("name", "said"), [("nats", "nats: not a setting: did you mean nats_url?"), ("qqq", "qqq: not a setting")]
)
def test_flag_that_is_no_setting_is_refused(name: str, said: str) -> None:
    with pytest.raises(SettingsError) as raised:
        load(**{name: "x"})
    assert str(raised.value) == said
