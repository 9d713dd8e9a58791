"""The SQL function: any language submits in its own transaction, and is told what is wrong with it."""

from __future__ import annotations

import json
from typing import Any

import asyncpg
import pytest

from grns.errors import InvalidInputError
from grns.model import json as strict_json
from grns.model.events import PAYLOADS
from grns.model.submission import submission
from grns.postgres import migrate
from grns.postgres.database import Database
from grns.settings import load
from grns.tasks.submit import prepare
from tests.support.bad_input import BAD_NAMES
from tests.support.store import fetch, log_of, row_of, stranger

NAN, INFINITY = "'NaN'::float8", "'Infinity'::float8"


async def call(database: Database, arguments: str, *values: Any) -> str:
    """Call the function as a stranger would, and return the task's id."""
    rows = await fetch(database, f"select grns.submit_task({arguments}) as id", *values)
    return str(rows[0]["id"])


async def refused(database: Database, arguments: str, *values: Any) -> asyncpg.PostgresError:
    """Call the function with something wrong, and return what Postgres says; nothing may be left of it."""
    with pytest.raises(asyncpg.PostgresError) as raised:
        await call(database, arguments, *values)
    assert not await fetch(database, "select from grns.tasks union all select from grns.events")
    return raised.value


async def test_the_least_that_can_be_said_is_a_task_type(shared: Database) -> None:
    task_id = await call(shared, "'noop'")
    row = await row_of(shared, task_id)
    said = {
        name: row[name] for name in ("workspace", "agent_type", "priority", "status", "payload", "version")
    }
    assert said == {
        "workspace": "default", "agent_type": "worker", "priority": 2, "status": "queued", "payload": "{}",
        "version": 1,
    }  # fmt: skip
    event, command = await log_of(shared, task_id)
    for entry, kind in ((event, "evt.task.queued"), (command, "cmd.task.execute")):
        assert entry["kind"] == kind
        PAYLOADS[kind].model_validate_json(entry["payload"])
        assert entry["trace_id"] == row["trace_id"]
    assert (event["route"], command["route"]) == (None, "worker.p2")
    assert event["message_id"] == row["last_message_id"]


async def test_everything_can_be_said_by_name(shared: Database) -> None:
    task_id = await call(
        shared,
        "'noop', '{\"n\": 9007199254740993}', agent_type => 'scout', priority => 0, delay_seconds => 60,"
        " max_attempts => 7, idempotency_key => 'a key', trace_id => 'tr-1',"
        " causation_id => '7dc6e5af-0776-4f37-8f16-5767f5f9471f', workspace => 'tenant'",
    )
    row = await row_of(shared, task_id)
    assert row["status"] == "waiting"
    assert (row["agent_type"], row["priority"], row["max_attempts"], row["workspace"]) == (
        "scout", 0, 7, "tenant",
    )  # fmt: skip
    assert (row["idempotency_key"], row["trace_id"]) == ("a key", "tr-1")
    assert json.loads(row["payload"]) == {"n": 2**53 + 1}
    assert (row["next_attempt_at"] - row["created_at"]).total_seconds() == 60


async def test_a_task_may_need_others(shared: Database) -> None:
    first = await call(shared, "'noop'")
    child = await call(
        shared, """'noop', '{"a": null}', needs => array[$1], priority => 1, delay_seconds => 60""", first
    )
    row = await row_of(shared, child)
    assert (row["status"], row["waits_for"], row["priority"]) == ("waiting", "tasks", 1)
    assert json.loads(row["payload"]) == {"a": None}
    needs = await fetch(shared, "select needs, outcome from grns.needs where task_id = $1", child)
    assert [tuple(need) for need in needs] == [(first, "success")]
    assert (await row_of(shared, await call(shared, "'noop', needs => '{}'")))["status"] == "queued"


async def test_a_need_that_cannot_be_is_refused(shared: Database) -> None:
    assert (await refused(shared, "'noop', needs => array['gr-unknown']")).detail == "unknown_need"
    error = await refused(shared, """'noop', needs => array['gr-unknown'], uniqueness => '{"key": "a"}'""")
    assert "no uniqueness" in str(error)


async def test_ids_are_as_ours(shared: Database) -> None:
    rows = await fetch(shared, "select grns.submit_task('noop') as id from generate_series(1, 500)")
    ids = [row["id"] for row in rows]
    assert len(set(ids)) == 500
    assert all(len(one) == 29 and one.startswith("gr-") and one[3:].isalnum() for one in ids)


async def test_it_happens_in_the_callers_transaction(shared: Database) -> None:
    async with stranger(shared) as connection:
        await connection.fetchval("select grns.submit_task('noop')")
        await connection.execute("rollback")
    assert not await fetch(shared, "select from grns.tasks union all select from grns.events")


async def test_a_key_returns_its_task_or_is_a_conflict(shared: Database) -> None:
    said = "'noop', '{\"n\": 1}', idempotency_key => 'k'"
    first = await call(shared, said)
    assert await call(shared, said) == first
    with pytest.raises(asyncpg.UniqueViolationError, match=first):
        await call(shared, said.replace("1", "2"))


async def test_a_key_that_cannot_be_seen_asks_to_try_again(shared: Database) -> None:
    async with stranger(shared) as connection:
        await connection.execute("rollback; begin isolation level repeatable read; select 1 from grns.tasks")
        await call(shared, "'noop', idempotency_key => 'k'")
        with pytest.raises(asyncpg.SerializationError):
            await connection.fetchval("select grns.submit_task('noop', idempotency_key => 'k')")


@pytest.mark.parametrize("name", ["task_type", "agent_type", "workspace"])
async def test_bad_names_are_refused(shared: Database, name: str) -> None:
    wrong = [case.value for case in BAD_NAMES if "\x00" not in case.value]
    for value in (*wrong, None, *(["instance"] if name == "agent_type" else [])):
        said = f"{name} => $1" if name == "task_type" else f"'noop', {name} => $1"
        error = await refused(shared, said, value)
        assert (error.sqlstate, name in str(error)) == ("22023", True), value


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("priority", ["7", "4", "-1", "null"]),
        ("max_attempts", ["-1", "0", "1001", "2147483647"]),
        ("delay_seconds", ["-1", "-0.001", "31622401", NAN, INFINITY, "'-Infinity'::float8", "null"]),
        ("idempotency_key", ["''", "repeat('x', 256)", "repeat('x', 10000)", "'é'", r"E'a\r\nb'", r"E'a\n'"]),
        ("trace_id", ["''", "repeat('x', 129)", "'a b'", "'é'", r"E'a\r\nPUB evil'", r"E'a\n'"]),
        ("causation_id", ["'00000000-0000-0000-0000-000000000000'"]),
    ],
)
async def test_bad_options_are_refused(shared: Database, name: str, values: list[str]) -> None:
    for value in values:
        error = await refused(shared, f"'noop', {name} => {value}")
        assert error.sqlstate == "22023", value
        assert name in str(error)
        assert error.detail == "bad_submission"
        assert len(str(error)) < 300, "what was handed in is not echoed"


@pytest.mark.parametrize(
    "arguments",
    ["priority => 2147483648", "max_attempts => 2147483648", "priority => true", "causation_id => 'nobody'"],
)
async def test_what_is_of_another_type_is_refused_by_postgres(shared: Database, arguments: str) -> None:
    await refused(shared, f"'noop', {arguments}")


GOOD_ROW = {
    "ids": "gr-0", "workspaces": "default", "task_types": "noop", "agent_types": "worker", "priorities": 2,
    "payloads": "{}", "delays": 0.0, "attempts": 3, "keys": None, "traces": "tr-1", "causations": None,
}  # fmt: skip
TYPES = ("text", "text", "text", "text", "smallint", "jsonb", "float8", "integer", "text", "text", "uuid")


async def submit_rows(database: Database, *rows: dict[str, Any]) -> list[Any]:
    """Call the function that the client calls."""
    arrays = ", ".join(f"${place}::{kind}[]" for place, kind in enumerate(TYPES, 1))
    columns = [[row[name] for row in rows] for name in GOOD_ROW]
    return await fetch(database, f"select * from grns.submit_tasks({arrays})", *columns)


@pytest.mark.parametrize("name", ["ids", "workspaces", "task_types", "agent_types"])
async def test_no_bad_name_comes_in_by_the_clients_function(shared: Database, name: str) -> None:
    """Of one row among good ones: it would become part of a subject or of a message's text."""
    wrong = [case.value for case in BAD_NAMES if "\x00" not in case.value]
    for value in (*wrong, *(["instance"] if name == "agent_types" else [])):
        with pytest.raises(asyncpg.InvalidParameterValueError) as raised:
            await submit_rows(shared, GOOD_ROW, GOOD_ROW | {"ids": "gr-1"} | {name: value})
        assert raised.value.detail == "bad_submission", value
        assert len(str(raised.value)) < 300
    assert not await fetch(shared, "select from grns.tasks union all select from grns.events")


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("traces", ["", "x" * 129, "a b", "é", "a\r\nPUB evil", "a\n", "\u202e"]),
        ("priorities", [-1, 4]),
        ("attempts", [0, -1, 1001, 2**31 - 1]),
        ("delays", [-1.0, 31622401.0, float("nan"), float("inf")]),
    ],
)
async def test_nothing_else_comes_in_there(shared: Database, name: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(asyncpg.InvalidParameterValueError):
            await submit_rows(shared, GOOD_ROW, GOOD_ROW | {"ids": "gr-1"} | {name: value})
    assert not await fetch(shared, "select from grns.tasks union all select from grns.events")
    assert not await submit_rows(
        shared, GOOD_ROW, GOOD_ROW | {"ids": "-rf", "attempts": None, "delays": None}
    )
    assert len(await fetch(shared, "select from grns.tasks")) == 2


DEEP = "(repeat('[', {0}) || repeat(']', {0}))::jsonb"
STRINGS = "jsonb_build_object('a', (select jsonb_agg(repeat('x', 24)) from generate_series(1, {0})))"
BAD_PAYLOADS = {
    "null": "null",
    "json_null": "'null'",
    "list": "'[]'",
    "text": "'\"{}\"'",
    "number": "'5'",
    "too_large": "jsonb_build_object('a', (select jsonb_agg(repeat('x', 60000)) from generate_series(1, 5)))",
    "depth_65": f"jsonb_build_object('a', {DEEP.format(64)})",
    "10001_values": "jsonb_build_object('a', (select jsonb_agg(0) from generate_series(1, 10000)))",
    "2^63": "'{\"a\": 9223372036854775808}'",
    "-2^63-1": "'{\"a\": [-9223372036854775809]}'",
    "1e131071": "'{\"a\": 1e131071}'",
    "1e309": "'{\"a\": [-1e309]}'",
    "digits_that_no_float_has": "'{\"a\": 12345678901234567890123}'",
    "large_without_spaces": STRINGS.format(9710),
    "many_1e131071": "jsonb_build_object('a', (select jsonb_agg(1e131071) from generate_series(1, 30)))",
    "5000_digits": "('{\"a\": ' || repeat('1', 5000) || '}')::jsonb",
    "long_string": "jsonb_build_object('a', repeat('x', 262137))",
    "long_string_of_two_byte_characters": "jsonb_build_object('a', repeat('é', 131069))",
    "long_key": "jsonb_build_object(repeat('k', 262144), 1)",
    "long_key_below": "jsonb_build_object('a', jsonb_build_object(repeat('k', 262140), 1))",
}


@pytest.mark.parametrize("name", BAD_PAYLOADS)
async def test_bad_payloads_are_refused(shared: Database, name: str) -> None:
    error = await refused(shared, f"'noop', {BAD_PAYLOADS[name]}")
    assert error.sqlstate == "22023"
    assert str(error).startswith("grns: ")
    assert len(str(error)) < 300
    assert error.detail in ("bad_submission", "too_large", "too_deep", "too_many_nodes", "bad_number")


@pytest.mark.parametrize(
    "text",
    [
        r'{"a": "\u0000"}', r'{"\u0000": 1}', r'{"a": "\ud800"}', '{"a": NaN}', "{'a': 1}", '{"a": 1,}',
        "{}{}", "", '{"a": 1e400000}', '{"a":' * 100_000,
    ],
    ids=lambda text: ascii(text)[:20],
)  # fmt: skip
async def test_what_is_no_json_is_refused_by_postgres(shared: Database, text: str) -> None:
    await refused(shared, "'noop', $1::text::jsonb", text)


@pytest.mark.parametrize(
    "payload",
    [
        '\'{"": 1, "__proto__": {}}\'',
        "'{\"a\": [9223372036854775807, -9223372036854775808, 0.1, 5e-324]}'",
        f"jsonb_build_object('a', {DEEP.format(63)})",
        "jsonb_build_object('a', repeat('x', 262136))",
        "jsonb_build_object('a', (select jsonb_agg(0) from generate_series(1, 9998)))",
        "'{\"a\": [1e22, -1e308, 1.7976931348623157e308, 1.2345678901234568e22, 9.3e18]}'",
        STRINGS.format(9708),
    ],
)
async def test_good_payloads_are_accepted(shared: Database, payload: str) -> None:
    task_id = await call(shared, f"'noop', {payload}")
    assert (await row_of(shared, task_id))["status"] == "queued"


# What becomes of numbers between a text and a handler, and whether they are refused for it.
NUMBERS = {
    "0": True, "0.0": True, "-0.0": True, "0e-400": True, "0.1": True, "-0.1": True, "1e-300": True,
    "5e-324": True,    "2.2250738585072014e-308": True, "1.5e10": True, "100.0": True, "1e2": True,
    "0.10000000000000001": True,  # as printf writes 0.1 with %.17g
    "33.3333333333333333": True,  # as Postgres divides
    f"0.{'3' * 40}": True, f"0.{'0' * 100}1": True, f"1.{'0' * 16_000}": True, f"0.5{'0' * 16_000}": True,
    f"0.{'3' * 41}": False, f"-1{'1' * 18}.{'1' * 23}": False, f"0.{'1' * 16_000}": False,
    "1e-400": False, "-1e-400": False, "1e-16383": False, "2e-324": False, "1.23456789e-320": False,
    f"0.{'0' * 400}1": False,
}  # fmt: skip


@pytest.mark.parametrize("text", NUMBERS, ids=lambda text: text[:30])
async def test_submit_of_a_number_that_a_float_does_not_keep_is_refused(shared: Database, text: str) -> None:
    """L12: SQL and Python refuse the same numbers: those that a handler would get as another one."""
    body = f'{{"a": {text}}}'
    if NUMBERS[text]:
        task_id = await call(shared, "'noop', $1::text::jsonb", body)
        (row,) = await fetch(shared, "select payload from grns.tasks where id = $1", task_id)
        assert strict_json.loads_stored(row["payload"]) == strict_json.parse(body)
        return
    error = await refused(shared, "'noop', $1::text::jsonb", body)
    assert (error.sqlstate, error.detail) == ("22023", "bad_number")
    with pytest.raises(InvalidInputError) as raised:
        strict_json.parse(body)
    assert raised.value.code == "bad_number"


@pytest.mark.parametrize("most", [1024, 262_144, 300_001])
async def test_submit_at_the_limit_agrees_with_python_after_the_setting_changes(
    database: Database, most: int
) -> None:
    """The largest payload is one setting: `grns admin db upgrade` gives it to SQL, to open sessions too."""
    limits = load(payload_max_bytes=most).payload_limits

    def payload(size: int) -> dict[str, str]:
        return {"a": "x" * (size - len('{"a":""}'))}

    def prepared(size: int) -> int:
        return len(prepare(submission(task_type="noop", payload=payload(size)), limits).payload)

    async with database.connection() as connection:
        await connection.fetchval("select grns.submit_task('noop')")  # its plans are kept
        await migrate.upgrade(database.url, payload_bytes=most)
        submit_sql = "select grns.submit_task('noop', $1::text::jsonb)"
        assert prepared(most) == most
        assert await connection.fetchval(submit_sql, json.dumps(payload(most)))
        with pytest.raises(InvalidInputError) as in_python:
            prepared(most + 1)
        with pytest.raises(asyncpg.InvalidParameterValueError, match=f", {most} are allowed") as in_sql:
            await connection.fetchval(submit_sql, json.dumps(payload(most + 1)))
        assert in_python.value.code == in_sql.value.detail == "too_large"
