"""One table of bad and good input, through every door: what one accepts all accept, and the word is the same.

The doors are the client, the SQL function, the command line, and the bus. A door that cannot be told
something is not asked: text has no sets, SQL's types no lists, argv no None.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from grns.bootstrap import tools
from grns.bootstrap.app import App
from grns.cli import run
from grns.client.arguments import WIRE
from grns.client.client import Client
from grns.errors import InvalidInputError, RejectedError, UnavailableError
from grns.model import subjects
from grns.postgres.database import Database
from grns.settings import load
from grns.worker import command
from tests.support.bad_input import (
    ACCEPTED,
    FRAMING,
    GOOD_DOCUMENTS,
    GOOD_NAMES,
    GOOD_OPTIONS,
    NOT_OBJECTS,
    OPTIONS,
    TEXTS,
    Case,
    encoded,
    envelope,
)
from tests.support.harness import settings_for
from tests.support.store import fetch

NOBODY = "postgresql://127.0.0.1:1/nobody"
BAD = "bad_submission"
# What Postgres itself refuses, before the function is called: it has no word of ours.
REFUSED_BY_TYPE = "refused by its type"
NOT_ASKED = "not asked"
LONGEST = 1000

SQL_TYPES = {
    "task_type": "text", "agent_type": "text", "priority": "integer", "max_attempts": "integer",
    "delay_seconds": "double precision", "idempotency_key": "text", "trace_id": "text",
    "causation_id": "uuid",
}  # fmt: skip
FLAGS = {
    "agent_type": "--pool", "priority": "--priority", "max_attempts": "--max-attempts",
    "delay_seconds": "--delay", "idempotency_key": "--idempotency-key", "trace_id": "--trace-id",
}  # fmt: skip
SUBMIT_FILE = ("task", "submit", "noop", "--payload", "@payload")
NUMBERS = ("priority", "max_attempts", "delay_seconds")

# The only differences, each with its reason.
DIFFERENT: dict[tuple[str, str], str] = {
    # jsonb keeps the last of two members of one name before the function sees anything
    ("sql", "duplicate_key"): ACCEPTED,
    ("sql", "duplicate_key_deep_down"): ACCEPTED,
    ("sql", "duplicate_key_spelt_otherwise"): ACCEPTED,
    # values are counted before anybody knows how long their text will be
    ("client", "100000_keys"): "too_many_nodes",
    # jsonb writes numbers out: they are half a megabyte, and that is seen first
    ("sql", "many_1e131071"): "too_large",
    # a message has a little more room than the payload in it
    ("bus", "depth_64"): ACCEPTED,
    ("bus", "10000_elements"): ACCEPTED,
    ("bus", "10000_nodes"): ACCEPTED,
}


# ---------------------------------------------------------------- the doors


@pytest.fixture
def client() -> Client:
    """A client of servers that are not there: what it accepts gets as far as them."""
    app = App(settings_for(NOBODY))
    return tools.client(app, app.database("test"), app.transport("test"), app.handlers_database())


async def by_client(client: Client, fields: dict[str, Any]) -> str:
    """Submit; return the word of the answer."""
    try:
        named = {WIRE.get(name, name): value for name, value in fields.items()}
        await client.submit(**{"task": "noop", "pool": "worker"} | named)
    except UnavailableError:
        return ACCEPTED
    except InvalidInputError as error:
        _check_text(str(error))
        return error.code
    raise AssertionError("nobody can have answered")


async def by_sql(database: Database, arguments: str, *values: Any) -> str:
    """Call the function; return the detail of its error. What is refused leaves nothing."""
    try:
        await fetch(database, f"select grns.submit_task({arguments})", *values)
    except asyncpg.InvalidParameterValueError as error:
        assert not await fetch(database, "select from grns.tasks union all select from grns.events")
        _check_text(str(error).replace("\n", " "))
        return str(error.detail)
    except (asyncpg.DataError, asyncpg.exceptions.DataError, asyncpg.SyntaxOrAccessError,
            asyncpg.ProgramLimitExceededError):  # fmt: skip
        assert not await fetch(database, "select from grns.tasks union all select from grns.events")
        return REFUSED_BY_TYPE
    assert len(await fetch(database, "delete from grns.tasks returning id")) == 1
    await fetch(database, "delete from grns.events")
    return ACCEPTED


Command = Callable[..., str]


@pytest.fixture
def by_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Command]:
    """Call commands whose servers are not there; the word is the last thing of the one sentence."""
    monkeypatch.chdir(tmp_path)
    before = dict(os.environ)
    os.environ["GRNS_DATABASE_URL"] = NOBODY
    os.environ["GRNS_NATS_URL"] = "nats://127.0.0.1:1"

    def call(*arguments: str) -> str:
        capsys.readouterr()
        code = run(arguments)
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        assert "bug in grns" not in said.err
        assert said.out == ""
        sentence, *hints = said.err.splitlines()
        _check_text(said.err.replace("\n", " "))
        assert sentence.startswith("grns: "), said.err
        if code == 5:
            return ACCEPTED
        assert code == 2, said.err
        assert hints or "must be" in sentence or " is " in sentence or ": " in sentence[6:], said.err
        return sentence.rpartition(" (")[2].rstrip(")")

    yield call
    os.environ.clear()
    os.environ.update(before)


def by_bus(document: bytes) -> str:
    """Read a command in whose payload there is a document more."""
    body = encoded(envelope(payload={"task_id": "gr-0", "target_agent_type": "worker", "a": 5}))
    try:
        command.read_command(
            body.replace(b'"a": 5', b'"a": ' + document),
            subject=subjects.shared_execute(),
            limits=load().envelope_limits,
        )
    except RejectedError as error:
        _check_text(str(error))
        return error.code
    return ACCEPTED


def _check_text(text: str) -> None:
    """Whatever was handed in: what is answered can be shown anywhere, and is read to its end."""
    assert 0 < len(text) <= LONGEST
    assert text.isprintable(), ascii(text)


def check(case: Case, said: dict[str, str], expected: str) -> None:
    """Hold the answers of all doors that were asked against the one that is expected."""
    wanted = {door: DIFFERENT.get((door, case.name), expected) for door in said}
    said = {door: answer for door, answer in said.items() if answer != NOT_ASKED}
    if REFUSED_BY_TYPE in said.values():
        assert expected != ACCEPTED
        said.pop("sql")
    assert said == {door: wanted[door] for door in said}


# ---------------------------------------------------------------- options and names


@pytest.mark.parametrize("case", [*OPTIONS, *GOOD_OPTIONS], ids=str)
async def test_options(case: Case, client: Client, shared: Database, by_command: Command) -> None:
    ((name, value),) = case.value.items()
    expected = ACCEPTED if case in GOOD_OPTIONS else BAD
    said = {
        "client": await by_client(client, case.value),
        "sql": await _option_by_sql(shared, name, value),
        "command": NOT_ASKED,
    }
    argument = _as_argument(name, value)
    if argument is not None:
        words = ["--", argument] if name == "task_type" else [f"{FLAGS[name]}={argument}", "noop"]
        said["command"] = await asyncio.to_thread(by_command, "task", "submit", *words)
    check(case, said, expected)


async def _option_by_sql(database: Database, name: str, value: Any) -> str:
    if isinstance(value, bool):  # the driver takes these for whole numbers, Postgres does not
        return await by_sql(database, f"'noop', {name} => {value}")
    if isinstance(value, float) and name != "delay_seconds":
        return await by_sql(database, f"'noop', {name} => '{value}'::double precision")
    if name == "delay_seconds" and isinstance(value, int) and abs(value) > 2**62:
        value = str(value)  # too long for a float, hence the driver says so
    first = "" if name == "task_type" else "'noop', "
    return await by_sql(database, f"{first}{name} => $1::{SQL_TYPES[name]}", value)


def _as_argument(name: str, value: Any) -> str | None:
    """Return a value as one types it; None where it cannot be typed, or is another value then."""
    if name not in FLAGS and name != "task_type":
        return None
    if name in NUMBERS and isinstance(value, (int, float)):
        return str(value)
    if name in NUMBERS or not isinstance(value, str):
        return None
    return value


@pytest.mark.parametrize("verb", ["show", "events", "wait", "cancel", "redrive"])
def test_names_on_the_command_line(verb: str, by_command: Command) -> None:
    """With `--` in front, anything is a name; without it, what begins with a dash is an option."""
    for case in GOOD_NAMES:
        assert by_command("task", verb, "--", case.value) == ACCEPTED, case
    for case in NAMES:
        assert by_command("task", verb, "--", case.value) == "bad_name", case
        assert by_command("dlq", "show", "--", case.value) == "bad_name", case
    by_command("task", verb, "-rf")
    by_command("task", verb, "-" + "x" * 5000)


NAMES = [
    Case(str(case.value)[:20], case.value[case.code], BAD) for case in OPTIONS if case.code == "task_type"
]
NAMES = [case for case in NAMES if isinstance(case.value, str)]


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["task", "list", "--after", "a b"], "bad_cursor"),
        (["dlq", "list", "--after", "nonsense"], "bad_cursor"),
        (["dlq", "list", "--after", "MjAyNi0wMi0wNlQyMTowMDowMCAA"], "bad_cursor"),
        (["dlq", "list", "--after", "é" * 5000], "bad_cursor"),
        (["dlq", "list", "--limit", "-1"], "bad_limit"),
        (["task", "list", "status:" + "x" * 3000], "bad_filter"),
        (["task", "list", "x" * 5000], "bad_filter"),
        (["task", "list", "type:\u202e", "age:1h"], "bad_filter"),
        (["task", "list", "type:\udcff"], "bad_filter"),
        (["dlq", "list", "--filter", "type:a\x00b"], "bad_filter"),
        (["task", "filter", "save", "a", "\x1b[2J:x"], "bad_filter"),
        (["task", "filter", "save", "../x", "status:dead"], "bad_name"),
        (["task", "list", "--limit", "x" * 5000], "bad_limit"),
        (["task", "wait", "gr-0", "--timeout", "\u202e"], "bad_timeout"),
        (["task", "submit", "noop", "--payload", "@" + "x" * 5000], "bad_file"),
        (["task", "submit", "noop", "--payload", "@a\x00b"], "bad_file"),
        (["task", "submit", "noop", "--payload", '"\udcff"'], "bad_encoding"),
    ],
    ids=lambda value: ascii(value)[:60],
)
def test_what_is_said_to_the_command_line_alone(by_command: Command, arguments: list[str], word: str) -> None:
    assert by_command(*arguments) == word


@pytest.mark.parametrize(
    "arguments",
    [
        ["x" * 5000], ["task", "\u202e"], ["task", "show", "gr-0", "x" * 5000], ["task", "list", "--\x1b[2J"],
        ["task", "list", "--status", "x" * 5000], ["--workspace", "a\x00b", "task", "list"],
        ["--workspace", "x" * 5000, "task", "list"], ["--workspace", "\u202e", "task", "list"],
        ["task", "list", "--workspace", "$SYS"], ["events", "tail", "--kind", "evt.\r\nPUB evil 0"],
        ["events", "tail", "--task", "a.b"], ["worker", "x" * 5000],
    ],
    ids=lambda value: ascii(value)[:60],
)  # fmt: skip
def test_what_no_other_door_is_told_is_refused_in_a_sentence(
    by_command: Command, arguments: list[str]
) -> None:
    assert by_command(*arguments) != ACCEPTED


# ---------------------------------------------------------------- payloads


@pytest.mark.parametrize("case", TEXTS + GOOD_DOCUMENTS, ids=str)
async def test_what_is_in_a_payload(
    case: Case, client: Client, shared: Database, by_command: Command, tmp_path: Path
) -> None:
    document = b'{"a": ' + case.value.strip() + b"}"
    # a payload is one level and one value itself
    expected = {"depth_64": "too_deep", "10000_nodes": "too_many_nodes"}.get(case.name, case.code)
    (tmp_path / "payload").write_bytes(document)
    said = {
        "command": await asyncio.to_thread(by_command, *SUBMIT_FILE),
        "sql": await _document_by_sql(shared, document),
        "bus": by_bus(case.value.strip()),
        "client": NOT_ASKED,
    }
    try:
        value = json.loads(document)
    except (ValueError, RecursionError):  # no Python value is like that
        value = None
    if value is not None and expected != "duplicate_key":
        said["client"] = await by_client(client, {"payload": value})
    if expected in ("too_large", "too_many_nodes"):
        assert said.pop("client") == ACCEPTED, "it keeps what is long as blobs"
    check(case, said, expected)


@pytest.mark.parametrize("case", FRAMING + NOT_OBJECTS, ids=str)
async def test_what_is_no_payload(
    case: Case, shared: Database, by_command: Command, tmp_path: Path, client: Client
) -> None:
    (tmp_path / "payload").write_bytes(case.value)
    is_good = case.code == ACCEPTED
    expected = case.code if not is_good else ACCEPTED if case.name == "empty_object" else BAD
    said = {
        "command": await asyncio.to_thread(by_command, *SUBMIT_FILE),
        "sql": await _document_by_sql(shared, case.value),
        "client": NOT_ASKED,
    }
    if is_good and case.value != b"null":  # for the client, None is no payload, which is an empty one
        said["client"] = await by_client(client, {"payload": json.loads(case.value)})
    if case.name.startswith("megabytes_of_spaces"):
        said["sql"] = NOT_ASKED  # jsonb has no spaces
    check(case, said, expected)


async def _document_by_sql(database: Database, document: bytes) -> str:
    try:
        text = document.decode()
    except UnicodeDecodeError:
        return NOT_ASKED  # the driver sends text only
    return await by_sql(database, "'noop', $1::text::jsonb", text)


# ---------------------------------------------------------------- good names on the bus


@pytest.mark.parametrize("case", GOOD_NAMES, ids=str)
def test_good_names_are_good_on_the_bus(case: Case) -> None:
    payload = {"task_id": case.value, "target_agent_type": case.value}
    read = command.read_command(
        encoded(envelope(payload=payload)), subject=subjects.shared_execute(), limits=load().envelope_limits
    )
    assert (read.task_id, read.agent_type) == (case.value, case.value)
    assert isinstance(read.message_id, UUID)
