"""The command line without servers: help, settings and errors."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import click
import pytest

from grns.cli import root, run, worker
from grns.cli.group import CliState, Command, Group
from grns.cli.output import Column, table
from grns.dev.servers.port import HOST, free_port
from tests.support.cli import CANARY, UNKNOWN, Call


def test_terms_are_told_without_any_server(unconfigured: Call) -> None:
    told = unconfigured("task", "filter", "fields", "-o", "json").json["items"]
    assert "dead" in next(row["values"] for row in told if row["name"] == "status")
    assert "payload.order.id:17" in unconfigured("task", "filter", "fields").out


@pytest.mark.parametrize(
    ("words", "goes_on"), [("task list stat", "status:"), ("dlq list status:dead,fa", "status:dead,failed")]
)
def test_terms_are_completed(
    words: str,
    goes_on: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("_GRNS_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", f"grns {words}")
    monkeypatch.setenv("COMP_CWORD", "3")
    assert run([]) == 0
    assert capsys.readouterr().out == f"plain,{goes_on}\n"


@pytest.mark.parametrize("width", [40, 80, 100, 200])
def test_a_narrow_terminal_never_cuts_an_id(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    row = {"id": "gr-06gvth4jukpbv0rmaajaog611c", "type": "a_long_type" * 3, "status": "succeeded"}
    columns = [
        Column("ID", "id"),
        Column("TYPE", "type", may_shrink=True),
        Column("STATUS", "status", is_status=True),
        Column("LESS", lambda row: "x" * 20, spare=1),
        Column("LEAST", lambda row: "y" * 10, spare=2),
    ]
    table([row] * 2, columns)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert all(len(click.unstyle(line).rstrip()) <= max(width, 53) for line in lines)
    assert all("gr-06gvth4jukpbv0rmaajaog611c" in line and "succeeded" in line for line in lines[1:])
    assert ("x" * 20 in lines[1], "y" * 10 in lines[1]) == (width >= 80, width >= 100)
    assert ("a_long_type" * 3 in lines[1]) == (width == 200)


def test_schemas_are_written_and_checked(unconfigured: Call, tmp_path: Path) -> None:
    stale = unconfigured("admin", "schema", "export", "--check")
    assert (stale.code, stale.hint) == (1, "grns admin schema export schemas")
    assert not (tmp_path / "schemas").exists()
    assert unconfigured("admin", "schema", "export", "elsewhere").code == 0
    assert (tmp_path / "elsewhere/asyncapi.json").exists()
    assert unconfigured("admin", "schema", "export", "elsewhere", "--check").code == 0


def test_config_show_needs_no_server(unconfigured: Call) -> None:
    os.environ["GRNS_DATABASE_URL"] = f"postgresql://grns:{CANARY}@db/app"
    shown = unconfigured("admin", "config", "show", "--origin", "--workspace", "acme")
    assert shown.code == 0
    assert "flag --workspace" in shown.out
    assert "postgresql://grns:***@db/app" in shown.out


def test_help_is_there_for_every_command(unconfigured: Call) -> None:
    told = unconfigured("--help")
    assert told.code == 0
    commands = [
        *("init", "dev", "demo", "server", "explain", "doctor", "top", "completion"),
        *(f"admin {verb}" for verb in ["bench", "verify", "config show", "nats-config", "schema export"]),
        *(f"admin {verb}" for verb in ["db upgrade", "db current", "broker apply", "broker info"]),
        *(f"daemon {name}" for name in ["api", "relay", "command-server", "reaper", "scheduler"]),
        *(f"daemon {name}" for name in ["stats", "janitor", "operations", "webhooks"]),
        *(f"worker {verb}" for verb in ["start", "list", "show"]),
        *(f"task {verb}" for verb in ["submit", "submit-many", "list", "count", "show", "events", "wait"]),
        *(f"task {verb}" for verb in ["edit", "cancel", "redrive", "discard"]),
        *(f"task filter {verb}" for verb in ["fields", "save", "list", "delete"]),
        *(f"dlq {verb}" for verb in ["list", "show", "resend", "discard", "export"]),
        *(f"pool {verb}" for verb in ["list", "pause", "resume"]),
        *(f"pool limit {verb}" for verb in ["put", "list", "show", "keys", "pause", "resume", "delete"]),
        *(f"events {verb}" for verb in ["tail", "export", "replay"]),
        *(f"issue {verb}" for verb in ["list", "show", "ack", "ignore", "resolve", "reopen", "snooze"]),
        *(f"issue {verb}" for verb in ["redrive", "discard"]),
        *(
            f"webhook {verb}"
            for verb in ["create", "list", "show", "edit", "delete", "rotate-secret", "ping"]
        ),
        *(f"webhook {verb}" for verb in ["deliveries", "resend"]),
        *(
            f"schedule {verb}"
            for verb in [
                "put",
                "list",
                "show",
                "next",
                "runs",
                "run",
                "backfill",
                "prune",
                "pause",
                "resume",
                "delete",
            ]
        ),
        *(f"operation {verb}" for verb in ["list", "show", "watch", "pause", "resume", "cancel"]),
        *(f"admin key {verb}" for verb in ["create", "list", "revoke", "rotate-token-secret"]),
        *(f"admin workspace {verb}" for verb in ["create", "list", "isolate"]),
    ]
    for command in commands:
        helped = unconfigured(*command.split(), "--help")
        assert helped.code == 0, command
        assert command.split()[0] in told.out


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("foo", "No such command"),
        ("task show", "Missing argument"),
        ("task show -rf", "No such option"),
        ("task show ../../etc/passwd", "task id must be"),
        ("task show a;b", "task id must be"),
        ("task show \x1b[31m", "task id must be"),
        ("task wait x --timeout soon", "is not a duration"),
        ("task submit a.b", "task_type must be"),
        ("task submit x --pool instance", "instance"),
        ("task submit x --payload {bad", "not one JSON document"),
        ("task submit x --payload [1]", "a JSON object, not an array"),
        ("task submit x --payload null", "a JSON object, not null"),
        ("task submit x --payload @/no/such/file", "cannot read /no/such/file"),
        ('task submit x --payload {"a":"\\u0000"}', "U+0000"),
        ('task submit x --payload {"a":1e400}', ""),
        ("task submit x --priority 4", "is not in the range"),
        ("task submit x --delay 1e400", "is not a duration"),
        ("task submit x --delay 99999999d", "delay_seconds"),
        ("task submit x --max-attempts 0", "is not in the range"),
        ("task list --limit 0", "is not in the range"),
        ("task list --status done", "is not one of"),
        ("task list status:done", "status is one of"),
        ("task list stat:dead", "did you mean status?"),
        ("task list --filter -age:1h", "age is a bound"),
        ("task list -status:dead", "No such option"),
        ("task list --saved-filter a.b", "name must be"),
        ("dlq list --what message type:x", "only tasks have"),
        ("task filter save x", "Missing argument"),
        ("task filter save x type:", "a value is missing"),
        ("task redrive", "name some ids"),
        ("task cancel", "name some ids"),
        ("task cancel x --filter type:x", "name some ids"),
        ("task cancel x --rate 1/s", "go with --filter"),
        ("task cancel --filter status:dead --yes", "one can cancel only"),
        ("dlq discard", "name some ids"),
        ("dlq resend 7dc6e5af-0776-4f37-8f16-5767f5f9471f --all", "name some ids"),
        ("dlq resend --all --body {}", "name one id"),
        ("task redrive x --filter status:dead", "name some ids"),
        ("task redrive x --canary", "go with --filter"),
        ("task redrive --filter status:queued --yes", "one can redrive only"),
        ("task redrive --filter colour:red --yes", "colour"),
        ("task redrive --filter= --rate 0 --yes", "is not a rate"),
        ("task redrive --filter= --rate 5/day --yes", "is not a rate"),
        ("task redrive --filter= --patch {bad --yes", "not one JSON document"),
        ("task redrive --filter= --patch [1] --yes", "patch"),
        ("task redrive --filter= --pool a.b --yes", "agent_type must be"),
        ("task discard --filter= --canary", "No such option"),
        ("dlq resend x", "is not the id of a message"),
        ("dlq resend 7dc6e5af-0776-4f37-8f16-5767f5f9471f --header x", "is not a header"),
        ("dlq export --messages --filter type:x", "selects tasks"),
        ("task edit x", "an edit names"),
        ("task edit x --payload {} --patch {}", "patch"),
        ("task edit x --priority 4", "is not in the range"),
        ("operation show x", "is not a valid whole number"),
        ("operation list --state dead", "is not one of"),
        ("issue show a.b", "fingerprint must be"),
        ("events tail --kind >", "is not a kind"),
        ("--workspace a.b task list", "workspace must be"),
        ("worker start", "Missing argument"),
        ("worker start ../x", "write MODULE:POOL"),
        ("worker start nope:pool", "cannot import nope"),
        ("--database-url postgresql+asyncpg://u@db/app task list", "write postgresql://…"),
        ("worker start workers.digest:nope", "pools there: pool"),
        ("worker start json:loads", "not a grns.Pool"),
        ("worker start workers.digest:pool --concurrency 0", "is not in the range"),
        ("server --only relay,clock", "is not a daemon"),
        ("completion tcsh", "is not one of"),
        ("daemon relay --metrics-port 70000", "is not in the range"),
        ("dev --port-nats x", "is not a valid integer"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(unconfigured: Call, command: str, says: str) -> None:
    """Before anything is connected to."""
    refused = unconfigured(*command.split(" "))
    assert refused.code == 2
    assert says in refused.sentence
    assert refused.out == ""


def test_a_command_alone_shows_its_help(unconfigured: Call) -> None:
    for command in ([], ["task"], ["dlq"], ["task", "filter"], ["admin"]):
        assert unconfigured(*command).code == 2


def test_a_pool_that_is_elsewhere_is_told_where_to_look(unconfigured: Call, tmp_path: Path) -> None:
    assert (
        unconfigured("worker", "start", "nope:pool").hint
        == "grns worker start nope:pool  (in the directory in which nope.py is)"
    )
    (tmp_path / "needy_module.py").write_text("import nope")
    assert unconfigured("worker", "start", "needy_module:pool").hint == "python -c 'import needy_module'"
    sys.path[:] = [path for path in sys.path if path != str(tmp_path)]


def test_a_module_that_raises_is_blamed(unconfigured: Call, tmp_path: Path) -> None:
    (tmp_path / "broken_module.py").write_text("raise ValueError('mine')")
    refused = unconfigured("worker", "start", "broken_module:pool")
    assert refused.code == 2
    assert refused.sentence == "importing broken_module raised ValueError: mine"
    assert refused.hint == "python -c 'import broken_module'"
    sys.path.remove(str(tmp_path))


def test_nats_config_writes_users_for_what_is_named(unconfigured: Call) -> None:
    """M10: it needs no server, and shows a password only where it is asked to make one."""
    block = unconfigured("admin", "nats-config", "--pool", "billing", "--submitter", "acme")
    assert block.code == 0
    for user in ("relay", "worker-billing", "submitter-acme", "listener-acme"):
        assert f'user: "{user}"' in block.out
    assert 'user: "worker"' not in block.out
    assert "password: $GRNS_NATS_PASSWORD_WORKER_BILLING" in block.out
    made = [unconfigured("admin", "nats-config", "--generate", "-o", "json").json["items"] for _ in range(2)]
    passwords = [user["password"] for users in made for user in users]
    assert len(set(passwords)) == len(passwords)
    assert all(len(password) == 41 for password in passwords)
    assert unconfigured("admin", "nats-config", "--submitter", "a.b").code == 2


def test_without_any_server_named(unconfigured: Call) -> None:
    for command in ("task list", "dlq list", "admin db upgrade", "daemon relay", f"task show {UNKNOWN}"):
        refused = unconfigured(*command.split())
        assert refused.code == 2
        assert "`grns dev`" in refused.sentence


def test_servers_that_are_gone(unconfigured: Call, tmp_path: Path) -> None:
    gone = f"{HOST}:{free_port()}"
    os.environ["GRNS_DATABASE_URL"] = f"postgresql://grns:{CANARY}@{gone}/grns"
    os.environ["GRNS_NATS_URL"] = f"nats://grns:{CANARY}@{gone}"
    os.environ["GRNS_NATS_STARTUP_SECONDS"] = "0.2"
    commands = ["task list", "task submit x", "dlq list", "admin db current", "admin db upgrade"]
    for command in [
        *commands,
        "admin broker info",
        "admin broker apply",
        "events tail",
        "events export",
        "top --once",
    ]:
        refused = unconfigured(*command.split())
        assert refused.code == 5, command
        assert refused.hint or "`grns dev`" in refused.sentence
    del os.environ["GRNS_DATABASE_URL"]
    (tmp_path / ".grns").mkdir()
    (tmp_path / ".grns/lock").touch()
    (tmp_path / ".grns/dev.toml").write_text(f'database_url = "postgresql://grns@{gone}/grns"')
    assert unconfigured("task", "list").hint.startswith("grns dev"), "a `grns dev` that was killed left this"


def commands_below(group: Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Command]]:
    """Return each command below a group with its words."""
    context = click.Context(group, info_name="grns")
    for name in group.list_commands(context):
        _, found, _ = group.resolve_command(context, [name])
        if isinstance(found, Group):
            yield from commands_below(found, (*path, name))
        else:
            assert isinstance(found, Command), (*path, name)
            yield (*path, name), found


def test_root_has_few_names() -> None:
    assert len(root.list_commands(click.Context(root))) <= 24


def test_each_command_has_two_examples_that_can_be_typed(unconfigured: Call, tmp_path: Path) -> None:
    """The words in capital letters stand for ids."""
    for file in ("report.json", "corrected.json", "tasks.jsonl"):
        (tmp_path / file).write_text("{}")
    for path, command in commands_below(root):
        assert len(command.examples) == 2, path
        for example in command.examples:
            typed = shlex.split(example.partition(" > ")[0].partition(" >> ")[0].rpartition(" | ")[2])
            words = typed[typed.index("grns") + 1 :]
            assert tuple(words[: len(path)]) == path, example
            words = [
                str(uuid4()) if word in ("ID", "MESSAGE_ID", "QUESTION_ID") else word
                for word in words[len(path) :]
            ]
            words = [f"{'0' * 20}" if word == "KEY_ID" else word for word in words]
            with command.make_context(example, words, obj=CliState()):
                pass  # it is parsed, and files that it opened are closed


def test_completion_prints_the_script_of_a_shell(unconfigured: Call) -> None:
    for shell in ("zsh", "fish"):
        assert "_GRNS_COMPLETE" in unconfigured("completion", shell).out


@pytest.mark.parametrize(("cores", "number"), [(1, 1), (2, 1), (5, 2), (16, 8)])
def test_processes_auto_is_half_of_the_cores(
    monkeypatch: pytest.MonkeyPatch, cores: int, number: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(cores)))
    (option,) = [one for one in worker.start.params if one.name == "processes"]
    assert option.type.convert("auto", option, None) == number
    assert option.type.convert("3", option, None) == 3
    with pytest.raises(click.BadParameter):
        option.type.convert("many", option, None)
