"""The command line: what a newcomer types, right and wrong, against real servers."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import click
import nats
import pytest

from grns.cli import root, run
from grns.cli.group import CliState, Command, Group
from grns.cli.output import Column, table
from grns.dev.servers import LocalNats, LocalPostgres
from grns.dev.servers.port import HOST, free_port
from tests.support.harness import Fleet

CANARY = "canary-7f3a"
SOURCE = Path(json.__file__)
UNKNOWN = "gr-nobodyknowsthis"


@dataclass(frozen=True)
class Town:
    """Servers with daemons and a worker of `workers.digest`, for all tests of this module."""

    postgres: LocalPostgres
    database_url: str
    nats_url: str

    def make_database(self, name: str, *, like: str = "template1") -> str:
        """Create a database and return its URL."""

        async def create() -> None:
            connection = await asyncpg.connect(self.postgres.admin_url)
            await connection.execute(f"create database {name} template {like}")
            await connection.close()

        asyncio.run(create())
        return self.postgres.admin_url.rsplit("/", 1)[0] + "/" + name


@pytest.fixture(scope="module")
def town(
    postgres: LocalPostgres, directory: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Town]:
    with LocalNats(directory / "nats-of-the-town") as broker:
        town = Town(postgres, "", broker.url)
        url = town.make_database(f"town_{uuid4().hex}", like="grns_template")
        environment = {
            "GRNS_DATABASE_URL": url,
            "GRNS_NATS_URL": broker.url,
            "GRNS_LOG_FORMAT": "json",
        }
        fleet = Fleet(tmp_path_factory.mktemp("town"), environment)
        fleet.start("server")
        fleet.start("worker", "start", "workers.digest:pool")
        yield Town(postgres, url, broker.url)
        fleet.end()


@dataclass(frozen=True)
class Answer:
    """What one command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What it wrote for programs."""
        return json.loads(self.out)

    @property
    def sentence(self) -> str:
        """Its error: one line of text, or of JSON from a daemon."""
        lines = [line.removeprefix("grns: ") for line in self.err.splitlines() if line.startswith("grns: ")]
        told = [json.loads(line) for line in self.err.splitlines() if line.startswith("{")]
        lines += [line["error"] for line in told if line["event"] == "service_failed"]
        assert len(lines) == 1, self.err
        return lines[0]

    @property
    def hint(self) -> str:
        """The next command that it names."""
        return next((line.removeprefix("  try: ") for line in self.err.splitlines() if "  try: " in line), "")


Call = Callable[..., Answer]


@pytest.fixture
def lonely(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Call]:
    """Run commands in an empty directory, where no setting names a server."""
    before = dict(os.environ)
    for name in [name for name in os.environ if name.startswith("GRNS_")]:
        del os.environ[name]
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> Answer:
        capsys.readouterr()
        kept = dict(os.environ)
        code = run(arguments)
        os.environ.clear()  # flags are handed on as environment
        os.environ.update(kept)
        answer = Answer(code, *capsys.readouterr())
        everything = answer.out + answer.err
        assert "Traceback" not in answer.err
        assert "bug in grns" not in everything, everything
        assert CANARY not in everything
        return answer

    yield call
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def grns(town: Town, lonely: Call) -> Call:
    """Run commands on the servers of the town."""
    os.environ["GRNS_DATABASE_URL"] = town.database_url
    os.environ["GRNS_NATS_URL"] = town.nats_url
    return lonely


def digest(path: Path | str = SOURCE) -> list[str]:
    """Return what submits the digest of a file."""
    payload = json.dumps({"path": str(path)})
    return ["task", "submit", "digest_file", "--pool", "digest", "--payload", payload]


# ---------------------------------------------------------------- tasks


def test_a_task_from_submit_to_its_end(grns: Call) -> None:
    shown = grns(*digest(), "--wait", "--timeout", "20", "-o", "json")
    assert shown.code == 0
    task = shown.json
    assert task["status"] == "succeeded"
    assert task["result"]["bytes"] == SOURCE.stat().st_size
    assert "waiting for its end" in shown.err

    for_people = grns("task", "show", task["id"])
    assert for_people.code == 0
    assert "succeeded" in for_people.out
    events = grns("task", "events", task["id"], "-o", "jsonl").out.splitlines()
    kinds = [json.loads(line)["kind"] for line in events]
    assert [kind for kind in kinds if kind.startswith("evt.")] == [
        "evt.task.queued",
        "evt.task.claimed",
        "evt.task.completed",
    ]
    assert grns("task", "wait", task["id"]).code == 0
    refused = grns("task", "redrive", task["id"])
    assert refused.code == 4
    assert "succeeded" in refused.out
    assert refused.sentence.endswith(
        "is unchanged (succeeded): only dead, failed and cancelled tasks can be redriven"
    )
    assert grns("task", "cancel", task["id"]).code == 4


def test_submit_prints_nothing_but_the_id(grns: Call) -> None:
    first = grns(*digest(), "--idempotency-key", "once")
    assert first.code == 0
    assert first.out.strip().startswith("gr-")
    assert len(first.out.split()) == 1
    second = grns(*digest(), "--idempotency-key", "once", "-o", "json")
    assert second.json["id"] == first.out.strip()
    assert second.json["is_new"] is False


def test_a_payload_from_a_file_and_from_a_pipe(grns: Call, tmp_path: Path) -> None:
    (tmp_path / "payload.json").write_text(json.dumps({"path": str(SOURCE)}))
    arguments = ["task", "submit", "digest_file", "--pool", "digest", "--wait", "--payload"]
    assert grns(*arguments, "@payload.json").code == 0
    piped = subprocess.run(
        [sys.executable, "-m", "grns", *arguments, "-", "-o", "json"],
        input=(tmp_path / "payload.json").read_bytes(),
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert piped.returncode == 0
    assert json.loads(piped.stdout)["status"] == "succeeded"


def test_a_task_that_nobody_runs_is_waited_for_in_vain_and_cancelled(grns: Call) -> None:
    task_id = grns("task", "submit", "nobody").out.strip()
    late = grns("task", "wait", task_id, "--timeout", "0.1")
    assert late.code == 6
    assert late.hint == f"grns explain {task_id}"
    assert grns("task", "redrive", task_id).code == 4
    ended = grns("task", "cancel", task_id, "--reason", "no more", "-o", "json")
    assert (ended.code, ended.json["items"]) == (0, [{"id": task_id, "answer": "cancelled"}])
    assert grns("task", "wait", task_id).code == 1
    assert grns("task", "redrive", task_id).code == 0
    assert grns("task", "cancel", task_id).code == 0


@pytest.mark.parametrize(
    ("agent_type", "said"),
    [("digest", "has a handler for digset_file"), ("digets", "no worker of the pool digets is up")],
)
def test_submit_wait_without_a_worker_for_the_type_says_so_while_it_waits(
    grns: Call, agent_type: str, said: str
) -> None:
    """Newcomer 11: a misspelt type was silent until the timeout, and `explain` knew why all the time."""
    late = grns("task", "submit", "digset_file", "--pool", agent_type, "--wait", "--timeout", "5")
    lines = late.err.splitlines()
    (first,) = [place for place, line in enumerate(lines) if said in line]
    (end,) = [place for place, line in enumerate(lines) if line.startswith("grns: ")]
    assert first < end, "before it gives up"
    task_id = lines[first].split(":")[0].removeprefix("task ")
    assert lines[first + 1] == lines[end + 1] == f"  try: grns explain {task_id}"
    assert (late.code, late.out) == (6, "")
    assert grns("task", "cancel", task_id).code == 0


def test_lists_go_on_where_they_ended(grns: Call) -> None:
    ids = {grns("task", "submit", "listed", "--delay", "1h").out.strip() for _ in range(3)}
    seen: set[str] = set()
    after: list[str] = []
    for _ in range(3):
        page = grns("task", "list", "--type", "listed", "--limit", "1", "-o", "json", *after).json
        seen |= {row["id"] for row in page["items"]}
        after = ["--after", page["next_cursor"]] if page["next_cursor"] else []
    assert seen == ids
    assert "listed" in grns("task", "list", "--status", "waiting").out
    nothing = grns("task", "list", "--type", "no_such_type")
    assert (nothing.code, nothing.out, nothing.err) == (0, "", "no such tasks\n")


def test_a_list_is_of_what_its_terms_say(grns: Call) -> None:
    payload = json.dumps({"order": {"id": 17}})
    ids = [
        grns("task", "submit", "filtered", "--delay", "1h", "--payload", payload).out.strip(),
        grns("task", "submit", "filtered", "--delay", "2h", "--priority", "0").out.strip(),
    ]

    def listed(*words: str) -> list[str]:
        return [row["id"] for row in grns("task", "list", "-o", "json", *words).json["items"]]

    assert listed("type:filter*", "status:waiting") == ids, "the next one due is the first"
    assert listed("type:filtered") == ids[::-1]
    assert listed("type:filtered payload.order.id:17") == ids[:1]
    assert listed("--filter", "-priority:0 type:filtered") == ids[:1]
    assert listed("--type", "filtered", "--", "-payload.order.id:*") == ids[1:]
    assert listed(ids[0]) == ids[:1]
    assert listed("type:filtered", "age:>1h") == []
    page = grns("task", "list", "type:filtered", "-o", "json").json
    assert (page["next_cursor"], page["is_partial"]) == (None, False)


def test_filters_are_saved(grns: Call) -> None:
    """L5: an empty one is refused here as by the API: an operation on it would mean all tasks."""
    task_id = grns("task", "submit", "kept", "--delay", "1h").out.strip()
    saved = grns("task", "filter", "save", "waiting-ones", "type:kept", "status:waiting", "-o", "json")
    assert (saved.code, saved.json) == (0, {"name": "waiting-ones", "text": "status:waiting type:kept"})
    rows = grns("task", "filter", "list", "-o", "json").json["items"]
    assert [(row["name"], row["saved_by"][:4]) for row in rows] == [("waiting-ones", "cli:")]
    empty = grns("task", "filter", "save", "x", "")
    assert (empty.code, "at least one term" in empty.sentence) == (2, True)
    assert "waiting-ones" in grns("task", "filter", "list").out
    found = grns("task", "list", "--saved-filter", "waiting-ones", "-o", "json").json["items"]
    assert [row["id"] for row in found] == [task_id]
    assert (
        grns("task", "list", "--saved-filter", "waiting-ones", "priority:0", "-o", "json").json["items"] == []
    )
    assert grns("dlq", "list", "--saved-filter", "waiting-ones", "-o", "json").json["items"] == []
    assert grns("task", "filter", "delete", "waiting-ones").code == 0
    for command in (
        ["task", "filter", "delete", "waiting-ones"],
        ["task", "list", "--saved-filter", "waiting-ones"],
    ):
        missing = grns(*command)
        assert (missing.code, missing.hint) == (3, "grns task filter list")
    assert grns("task", "filter", "list").err == "no saved filters\n"


def test_terms_are_told_without_any_server(lonely: Call) -> None:
    told = lonely("task", "filter", "fields", "-o", "json").json["items"]
    assert "dead" in next(row["values"] for row in told if row["name"] == "status")
    assert "payload.order.id:17" in lonely("task", "filter", "fields").out


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


def test_dead_tasks_are_listed_and_run_again(grns: Call) -> None:
    ended = grns("task", "submit", "hopeless", "--pool", "digest", "--wait", "-o", "json")
    assert ended.code == 1
    task_id = ended.json["id"]
    for words in (["--type", "hopeless"], ["type:hope*", "age:<1h"], ["--what", "task", "error:*"], []):
        listed = grns("dlq", "list", *words, "-o", "json").json["items"]
        assert task_id in [row["id"] for row in listed]
    assert grns("dlq", "list", "type:hopeless", "-o", "json", "--", "-error:*").json["items"] == []
    assert grns("dlq", "show", task_id).code == 0
    assert grns("task", "discard", task_id, "--yes").code == 0
    assert task_id not in grns("dlq", "list", "--type", "hopeless").out
    assert grns("task", "discard", task_id, "--yes").code == 4
    assert grns("task", "redrive", task_id).code == 0
    assert grns("task", "wait", task_id, "--timeout", "20").code == 1
    assert task_id in grns("dlq", "list", "--type", "hopeless").out


def column(answer: Answer, task_id: str, name: str) -> str:
    """Return what a table shows of a task in a column."""
    head, *lines = answer.out.splitlines()
    (line,) = [line for line in lines if line.startswith(task_id)]
    start = head.index(name)
    return line[start:].split("  ")[0].strip()


def test_task_list_of_a_task_that_was_redriven_shows_the_attempts_that_count(grns: Call) -> None:
    """Newcomer 12: ATTEMPT was `4/2` after a redrive, and `0/?` while the task waited."""
    waiting = grns("task", "submit", "hopeless", "--pool", "unserved").out.strip()
    assert column(grns("task", "list", waiting), waiting, "ATTEMPT") == "0"
    assert grns("task", "cancel", waiting).code == 0
    ended = grns("task", "submit", "hopeless", "--pool", "digest", "--wait", "-o", "json")
    task_id, attempts = ended.json["id"], []
    for _ in range(2):
        attempts.append(column(grns("task", "list", task_id), task_id, "ATTEMPT"))
        shown = grns("task", "show", task_id).out
        assert grns("task", "redrive", task_id).code == 0
        assert grns("task", "wait", task_id, "--timeout", "20").code == 1
    assert attempts == ["2/2", "2/2"]
    assert "2 of 2 (4 in all)" in shown
    row = grns("task", "show", task_id, "-o", "json").json
    assert (row["attempt"], row["uncounted_attempts"], row["max_attempts"]) == (6, 4, 2)


def test_task_show_and_explain_of_a_dead_task_show_its_traceback(grns: Call) -> None:
    """Newcomer 15: to see where a handler failed, you needed the log of the right worker."""
    ended = grns("task", "submit", "hopeless", "--pool", "digest", "--wait", "-o", "json")
    task_id = ended.json["id"]
    raised = 'raise ValueError(f"attempt {task.attempt} fails like every other one")'
    for verb in (["task", "show"], ["explain"]):
        lines = [line.strip() for line in grns(*verb, task_id).out.splitlines()]
        begin = lines.index("traceback")
        assert lines[begin + 1] == "Traceback (most recent call last):"
        assert raised in lines[begin:]
    assert raised in grns("explain", task_id, "-o", "json").json["traceback"]


def test_task_list_of_a_task_that_succeeded_shows_no_error(grns: Call) -> None:
    """Newcomer 12: the error of an attempt before the last one stood beside `succeeded`."""
    ended = grns("task", "submit", "flaky", "--pool", "digest", "--wait", "-o", "json")
    assert ended.json["last_error"]["class"] == "ConnectionError", "it is kept, and shown as what it was"
    task_id = ended.json["id"]
    listed = grns("task", "list", task_id)
    assert (column(listed, task_id, "STATUS"), column(listed, task_id, "ATTEMPT")) == ("succeeded", "2/3")
    assert "ConnectionError" not in listed.out
    assert grns("task", "list", task_id, "-o", "json").json["items"][0]["error_class"] is None
    assert "error of an earlier attempt" in grns("task", "show", task_id).out


def test_a_message_that_nobody_could_accept(grns: Call, town: Town) -> None:
    body = b"\x1b]0;owned\x07 {no json"

    async def intrude() -> None:
        client = await nats.connect(town.nats_url)
        await client.publish("cmd.task.execute.v1", body)
        await client.flush()
        await client.close()

    asyncio.run(intrude())
    deadline = time.monotonic() + 20
    while not (found := grns("dlq", "list", "--what", "message", "-o", "json").json["items"]):
        assert time.monotonic() < deadline
    dead_letter_id = found[0]["id"]
    shown = grns("dlq", "show", dead_letter_id)
    assert shown.code == 0
    assert "\x1b" not in shown.out, "a terminal must not act on it"
    raw = subprocess.run(
        [sys.executable, "-m", "grns", "dlq", "show", dead_letter_id, "--raw"],
        capture_output=True,
        timeout=30,
        check=True,
    )
    assert raw.stdout == body
    assert grns("dlq", "discard", dead_letter_id).code == 2
    assert "would be" in grns("dlq", "discard", dead_letter_id, "--dry-run").out
    assert grns("dlq", "discard", dead_letter_id, "--yes").code == 0
    assert grns("dlq", "discard", dead_letter_id, "--yes").code == 4


def test_events_are_followed_until_ctrl_c(grns: Call, tmp_path: Path) -> None:
    output = tmp_path / "tail"
    with output.open("wb") as out, (tmp_path / "notes").open("wb") as notes:
        tail = subprocess.Popen(
            [sys.executable, "-m", "grns", "events", "tail", "--kind", "evt.task.*", "-o", "jsonl"],
            stdout=out,
            stderr=notes,
        )
        try:
            deadline = time.monotonic() + 20
            while b"following" not in (tmp_path / "notes").read_bytes():
                assert time.monotonic() < deadline
                time.sleep(0.02)
            task_id = grns(*digest()).out.strip()
            while b"evt.task.completed" not in output.read_bytes():
                assert time.monotonic() < deadline
                time.sleep(0.02)
            tail.send_signal(signal.SIGINT)
            assert tail.wait(10) == 130
        finally:
            tail.kill()
            tail.wait()
    seen = [json.loads(line) for line in output.read_text().splitlines()]
    assert [said["kind"] for said in seen if said["payload"]["task_id"] == task_id] == [
        "evt.task.queued",
        "evt.task.claimed",
        "evt.task.completed",
    ]


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


# ---------------------------------------------------------------- set up


def test_the_schema_comes_with_db_upgrade(grns: Call, town: Town) -> None:
    os.environ["GRNS_DATABASE_URL"] = town.make_database("fresh")
    current = grns("admin", "db", "current", "-o", "json")
    assert (current.code, current.json["current"], current.hint) == (1, None, "grns admin db upgrade")
    for command in (
        ["task", "list"],
        ["task", "submit", "x"],
        ["dlq", "list"],
        ["daemon", "relay"],
        ["server"],
    ):
        refused = grns(*command)
        assert refused.code == 5, command
        assert "`grns admin db upgrade`" in refused.sentence
    assert "create table" in grns("admin", "db", "upgrade", "--sql").out.lower()
    assert grns("admin", "db", "current").code == 1, "--sql runs nothing"
    assert grns("admin", "db", "upgrade").code == 0
    assert "already" in grns("admin", "db", "upgrade").err
    assert grns("admin", "db", "current").code == 0
    assert grns("task", "list").code == 0


def test_the_broker_is_made_and_looked_at(grns: Call, directory: Path) -> None:
    with LocalNats(directory / "nats-bare") as bare:
        os.environ["GRNS_NATS_URL"] = bare.url
        missing = grns("admin", "broker", "info")
        assert (missing.code, missing.hint) == (1, "grns admin broker apply")
        assert grns("admin", "broker", "apply").code == 0
        assert "already" in grns("admin", "broker", "apply").err
        found = grns("admin", "broker", "info", "-o", "json")
        assert found.code == 0
        assert {stream["name"] for stream in found.json["items"]} == {"GRNS_CMD", "GRNS_EVT", "GRNS_DLQ"}


def test_schemas_are_written_and_checked(lonely: Call, tmp_path: Path) -> None:
    stale = lonely("admin", "schema", "export", "--check")
    assert (stale.code, stale.hint) == (1, "grns admin schema export schemas")
    assert not (tmp_path / "schemas").exists()
    assert lonely("admin", "schema", "export", "elsewhere").code == 0
    assert (tmp_path / "elsewhere/asyncapi.json").exists()
    assert lonely("admin", "schema", "export", "elsewhere", "--check").code == 0


def test_config_show_needs_no_server(lonely: Call) -> None:
    os.environ["GRNS_DATABASE_URL"] = f"postgresql://grns:{CANARY}@db/app"
    shown = lonely("admin", "config", "show", "--origin", "--workspace", "acme")
    assert shown.code == 0
    assert "flag --workspace" in shown.out
    assert "postgresql://grns:***@db/app" in shown.out


def test_help_is_there_for_every_command(lonely: Call) -> None:
    told = lonely("--help")
    assert told.code == 0
    commands = [
        *("dev", "demo", "server", "explain", "doctor", "top", "verify", "completion"),
        *(f"admin {verb}" for verb in ["bench", "config show", "nats-config", "schema export"]),
        *(f"admin {verb}" for verb in ["db upgrade", "db current", "broker apply", "broker info"]),
        *(f"daemon {name}" for name in ["api", "relay", "command-server", "reaper", "scheduler"]),
        *(f"daemon {name}" for name in ["stats", "janitor", "operations", "webhooks"]),
        *(f"worker {verb}" for verb in ["start", "list", "show"]),
        *(f"task {verb}" for verb in ["submit", "submit-many", "list", "count", "show", "events", "wait"]),
        *(f"task {verb}" for verb in ["edit", "cancel", "redrive", "discard"]),
        *(f"task filter {verb}" for verb in ["fields", "save", "list", "delete"]),
        *(f"dlq {verb}" for verb in ["list", "show", "resend", "discard", "export"]),
        *(f"pool {verb}" for verb in ["list", "pause", "resume"]),
        *(f"events {verb}" for verb in ["tail", "export", "replay"]),
        *(f"issue {verb}" for verb in ["list", "show", "ack", "ignore", "resolve", "reopen", "snooze"]),
        *(f"issue {verb}" for verb in ["redrive", "discard"]),
        *(
            f"webhook {verb}"
            for verb in ["create", "list", "show", "edit", "delete", "rotate-secret", "ping"]
        ),
        *(f"webhook {verb}" for verb in ["deliveries", "resend"]),
        *(f"operation {verb}" for verb in ["list", "show", "watch", "pause", "resume", "cancel"]),
        *(f"key {verb}" for verb in ["create", "list", "revoke", "rotate-token-secret"]),
        *(f"workspace {verb}" for verb in ["create", "list", "isolate"]),
    ]
    for command in commands:
        helped = lonely(*command.split(), "--help")
        assert helped.code == 0, command
        assert command.split()[0] in told.out


# ---------------------------------------------------------------- what is typed wrong


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
def test_what_is_wrong_is_said_in_one_sentence(lonely: Call, command: str, says: str) -> None:
    """Before anything is connected to."""
    refused = lonely(*command.split(" "))
    assert refused.code == 2
    assert says in refused.sentence
    assert refused.out == ""


def test_a_command_alone_shows_its_help(lonely: Call) -> None:
    for command in ([], ["task"], ["dlq"], ["task", "filter"], ["admin"]):
        assert lonely(*command).code == 2


def test_a_pool_that_is_elsewhere_is_told_where_to_look(lonely: Call, tmp_path: Path) -> None:
    assert (
        lonely("worker", "start", "nope:pool").hint
        == "grns worker start nope:pool  (in the directory in which nope.py is)"
    )
    (tmp_path / "needy_module.py").write_text("import nope")
    assert lonely("worker", "start", "needy_module:pool").hint == "python -c 'import needy_module'"
    sys.path[:] = [path for path in sys.path if path != str(tmp_path)]


def test_a_variable_that_is_misspelt_is_told(grns: Call) -> None:
    os.environ["GRNS_LEASE_SECOND"] = "5"
    told = grns("task", "list")
    assert told.code == 0
    assert "did you mean GRNS_LEASE_SECONDS?" in told.err


def test_a_module_that_raises_is_blamed(lonely: Call, tmp_path: Path) -> None:
    (tmp_path / "broken_module.py").write_text("raise ValueError('mine')")
    refused = lonely("worker", "start", "broken_module:pool")
    assert refused.code == 2
    assert refused.sentence == "importing broken_module raised ValueError: mine"
    assert refused.hint == "python -c 'import broken_module'"
    sys.path.remove(str(tmp_path))


@pytest.mark.parametrize(
    "command",
    [
        f"task show {UNKNOWN}",
        f"task events {UNKNOWN}",
        f"task wait {UNKNOWN}",
        f"task cancel {UNKNOWN}",
        f"task redrive {UNKNOWN}",
        f"dlq show {UNKNOWN}",
        "dlq resend 7dc6e5af-0776-4f37-8f16-5767f5f9471f",
        f"task discard {UNKNOWN} --yes",
        "dlq discard 7dc6e5af-0776-4f37-8f16-5767f5f9471f --yes",
    ],
)
def test_what_does_not_exist_is_said(grns: Call, command: str) -> None:
    missing = grns(*command.split())
    assert missing.code == 3
    assert missing.hint in ("grns task list", "grns dlq list")


def test_another_workspace_sees_nothing(grns: Call) -> None:
    task_id = grns("task", "submit", "nobody", "--delay", "1h").out.strip()
    assert grns("--workspace", "other", "task", "show", task_id).code == 3
    assert grns("task", "cancel", task_id, "--workspace", "other").code == 3
    assert grns("task", "show", task_id).code == 0


# ---------------------------------------------------------------- users of the broker


def test_nats_config_writes_users_for_what_is_named(lonely: Call) -> None:
    """M10: it needs no server, and shows a password only where it is asked to make one."""
    block = lonely("admin", "nats-config", "--pool", "billing", "--submitter", "acme")
    assert block.code == 0
    for user in ("relay", "worker-billing", "submitter-acme", "listener-acme"):
        assert f'user: "{user}"' in block.out
    assert 'user: "worker"' not in block.out
    assert "password: $GRNS_NATS_PASSWORD_WORKER_BILLING" in block.out
    made = [lonely("admin", "nats-config", "--generate", "-o", "json").json["items"] for _ in range(2)]
    passwords = [user["password"] for users in made for user in users]
    assert len(set(passwords)) == len(passwords)
    assert all(len(password) == 41 for password in passwords)
    assert lonely("admin", "nats-config", "--submitter", "a.b").code == 2


# ---------------------------------------------------------------- servers that are not there


def test_without_any_server_named(lonely: Call) -> None:
    for command in ("task list", "dlq list", "admin db upgrade", "daemon relay", f"task show {UNKNOWN}"):
        refused = lonely(*command.split())
        assert refused.code == 2
        assert "`grns dev`" in refused.sentence


def test_servers_that_are_gone(lonely: Call, tmp_path: Path) -> None:
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
        refused = lonely(*command.split())
        assert refused.code == 5, command
        assert refused.hint or "`grns dev`" in refused.sentence
    del os.environ["GRNS_DATABASE_URL"]
    (tmp_path / ".grns").mkdir()
    (tmp_path / ".grns/lock").touch()
    (tmp_path / ".grns/dev.toml").write_text(f'database_url = "postgresql://grns@{gone}/grns"')
    assert lonely("task", "list").hint.startswith("grns dev"), "a `grns dev` that was killed left this"


def test_a_database_that_is_not_there(grns: Call, town: Town) -> None:
    os.environ["GRNS_DATABASE_URL"] = town.database_url + "_not"
    refused = grns("task", "list")
    assert refused.code == 5
    assert "does not exist" in refused.sentence


def test_reading_and_submitting_need_no_broker(grns: Call) -> None:
    os.environ["GRNS_NATS_URL"] = f"nats://{HOST}:{free_port()}"
    task_id = grns("task", "submit", "nobody", "--delay", "1h").out.strip()
    assert grns("task", "show", task_id).code == 0
    assert grns("task", "cancel", task_id).code == 0


def test_a_metrics_port_that_is_taken(grns: Call) -> None:
    with socket.create_server((HOST, 0)) as stranger:
        refused = grns("daemon", "relay", "--metrics-port", str(stranger.getsockname()[1]))
    assert refused.code != 0
    assert "already in use" in refused.sentence


def test_a_reader_who_leaves_early_is_no_error(grns: Call) -> None:
    finished = subprocess.run(
        ["/bin/sh", "-c", f"{sys.executable} -m grns admin config show | head -1; true"],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert finished.stderr == ""


# ---------------------------------------------------------------- help


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


def test_root_has_at_most_twenty_names() -> None:
    assert len(root.list_commands(click.Context(root))) <= 20


def test_each_command_has_two_examples_that_can_be_typed(lonely: Call, tmp_path: Path) -> None:
    """The words in capital letters stand for ids."""
    for file in ("report.json", "corrected.json", "tasks.jsonl"):
        (tmp_path / file).write_text("{}")
    for path, command in commands_below(root):
        assert len(command.examples) == 2, path
        for example in command.examples:
            typed = shlex.split(example.partition(" > ")[0].partition(" >> ")[0].rpartition(" | ")[2])
            words = typed[typed.index("grns") + 1 :]
            assert tuple(words[: len(path)]) == path, example
            words = [str(uuid4()) if word in ("ID", "MESSAGE_ID") else word for word in words[len(path) :]]
            words = [f"{'0' * 20}" if word == "KEY_ID" else word for word in words]
            with command.make_context(example, words, obj=CliState()):
                pass  # it is parsed, and files that it opened are closed


def test_completion_prints_the_script_of_a_shell(lonely: Call) -> None:
    for shell in ("zsh", "fish"):
        assert "_GRNS_COMPLETE" in lonely("completion", shell).out
