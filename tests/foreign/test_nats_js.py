"""A client in JavaScript: nats.js, which knows of grns what `schemas/` says (ajv, AsyncAPI's parser).

`client.mjs` checks every message against the schema of its subject, both ways; here what it says is held
against Postgres. Its packages are fetched once a run, into a temporary directory. nats.js 3.3 is the latest
that runs on the node of Debian 13.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import nats
import pytest
from nats.aio.client import Client as Nats

from grns.dev.servers import LocalNats
from grns.postgres.database import Database
from tests.foreign.conftest import INSTALL_SECONDS
from tests.support import commands as orders
from tests.support.harness import (
    ROOT,
    Fleet,
    all_in,
    check_stories,
    committed,
    events_of,
    eventually,
    ready,
    rows_of,
)

ASYNCAPI = ROOT / "schemas" / "asyncapi.json"
LIMIT_SECONDS = 60.0
TASKS = 3
PRIORITY_SUBJECTS = 4
# Told by the counter, when it comes round.
UNTIMED = "evt.issue.changed"

REFUSED = {
    "no_json": (400, "bad_json"),
    "no_id": (400, "bad_envelope"),
    "no_type": (400, "bad_submission"),
    "no_such_priority": (400, "bad_submission"),
    "no_agents_name": (400, "bad_submission"),
    "another_kind": (400, "kind_mismatch"),
    "another_workspace": (400, "bad_submission"),
    "no_such_task": (404, "not_found"),
    "another_key": (404, "not_found"),
    "two_of_one_id": (409, "conflict"),
}
# What no schema can tell: who is there already.
UNTOLD = {"another_workspace", "no_such_task", "another_key", "two_of_one_id"}

pytestmark = pytest.mark.timeout(INSTALL_SECONDS + 120)


@pytest.fixture
async def plain(broker: LocalNats) -> AsyncIterator[Nats]:
    """A connection that looks whether everybody is there."""
    client = await nats.connect(broker.url)
    yield client
    await client.close()


class Program:
    """A program of node; what it writes are documents, one a line."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def says(self) -> dict[str, Any]:
        """Return the next document; fail with what the program complained of where there is none."""
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        async with asyncio.timeout(LIMIT_SECONDS):
            line = await self._process.stdout.readline()
            assert line, (await self._process.stderr.read()).decode()
        said: dict[str, Any] = json.loads(line)
        return said

    async def ends(self) -> str:
        """Return what else it wrote; it has to end well."""
        async with asyncio.timeout(LIMIT_SECONDS):
            output, complaints = await self._process.communicate()
        assert self._process.returncode == 0, complaints.decode()
        return output.decode()


@asynccontextmanager
async def node(*arguments: str | Path, **environment: str) -> AsyncIterator[Program]:
    """Run a program of node meanwhile."""
    process = await asyncio.create_subprocess_exec(
        "node",
        *arguments,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        limit=2**24,
    )
    try:
        yield Program(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def is_open(foreign: Nats) -> bool:
    """Say whether a worker listens in all its lanes and at the front door, and a desk where it should."""
    if not await orders.is_open(foreign):
        return False
    found = await foreign.jetstream().consumers_info("GRNS_CMD")
    serving = [one for one in found if one.name.startswith("execute") and one.num_waiting]
    return len(serving) == PRIORITY_SUBJECTS + 1


async def create(database: Database) -> list[str]:
    """Create tasks by the SQL function, on a connection of one's own."""
    connection = await asyncpg.connect(database.url)
    try:
        rows = await connection.fetch(
            "select grns.submit_task('noop', '{}', 'worker') as id from generate_series(1, $1)", TASKS
        )
    finally:
        await connection.close()
    return [row["id"] for row in rows]


async def test_with_nats_js_and_the_published_schemas_everything_can_be_asked_for_and_heard(
    fleet: Fleet,
    database: Database,
    broker: LocalNats,
    plain: Nats,
    programs: Path,
    journal: Callable[[], list[str]],
) -> None:
    worker = fleet.start(
        "worker", "start", "tests.support.pools:pool", GRNS_POLL_AFTER_SECONDS="60", GRNS_LOG_LEVEL="debug"
    )
    fleet.start("daemon", "command-server")
    await ready(database, worker)
    await eventually(lambda: is_open(plain))
    given = await create(database)

    async with node(programs / "client.mjs", broker.url, ASYNCAPI, *given) as client:
        told = await client.says()
        asked, executed = told["asked"], told["executed"]
        _check_refused(told["refused"])
        await _check_asked(database, asked)

        # No relay runs: commands of the client have brought these, or hints of the server that took them.
        await all_in(database, [*given, asked["ran"]], within_seconds=LIMIT_SECONDS)
        await all_in(database, [asked["died"]], "dead", within_seconds=LIMIT_SECONDS)
        claims = fleet.facts_of(worker, "task_claimed")
        sources = {fact["task_id"]: fact["source"] for fact in claims if fact["attempt"] == 1}
        assert {sources[task_id] for task_id in given} == {"shared"}
        assert set(sources.values()) <= {"shared", "hint"}
        assert {fact["task_id"] for fact in claims} == set(executed) == {*given, *_executed(asked)}

        fleet.start("server")
        heard = await client.says()
        assert await client.ends() == ""

    await all_in(database, [asked["retried"]], within_seconds=LIMIT_SECONDS)
    stories = await check_stories(database, list(executed))
    for task_id, message_id in executed.items():
        if sources[task_id] == "shared":
            assert str(stories[task_id][1]["causation_id"]) == message_id, "the claim answers the command"
    stories |= await events_of(database, [asked["cancelled"], asked["cancelled_elsewhere"]])
    await _check_heard(database, heard, stories)


def _executed(asked: dict[str, Any]) -> list[str]:
    return [asked["ran"], asked["retried"], asked["died"]]


def _check_refused(refused: dict[str, dict[str, Any]]) -> None:
    """Check that each wish got its problem, and that the schemas had told of it where they can."""
    assert {name: (one["status"], one["code"]) for name, one in refused.items()} == REFUSED
    assert {name for name, one in refused.items() if not one["is_told"]} == UNTOLD
    for one in refused.values():
        assert one["content_type"] == "application/problem+json"
        assert (one["header_status"], one["header_code"]) == (str(one["status"]), one["code"])


async def _check_asked(database: Database, asked: dict[str, Any]) -> None:
    """Check that what the client was told is what Postgres has."""
    assert asked["words"] == [
        "created", "repeated", "created", "created", "created", "cancelled", "created", "cancelled",
    ]  # fmt: skip
    assert asked["is_same"]
    assert asked["statuses"] == ["cancelled", "cancelled"]
    gone = [asked["cancelled"], asked["cancelled_elsewhere"]]
    rows = await rows_of(database, [*_executed(asked), *gone])
    assert [rows[task_id]["status"] for task_id in gone] == ["cancelled"] * 2
    assert {task_id: row["workspace"] for task_id, row in rows.items() if row["workspace"] != "default"} == {
        asked["cancelled_elsewhere"]: "acme"
    }
    ran = rows[asked["ran"]]
    assert (ran["task_type"], ran["priority"], ran["trace_id"]) == ("noop", 1, "tr-8f678c2a")
    assert json.loads(ran["payload"]) == {"url": "https://example.org"}
    assert [rows[asked[name]]["max_attempts"] for name in ("retried", "died")] == [3, 1]
    async with database.connection() as connection:
        assert await connection.fetchval("select count(*) from grns.tasks") == TASKS + 6


async def _check_heard(database: Database, heard: dict[str, Any], stories: dict[str, list[Any]]) -> None:
    """Check that both ways told of all that the log has of these tasks, in its order."""
    log = await committed(database, "evt.") | await committed(database, "dlq.")
    for way in ("plain", "stream"):
        first: dict[str, dict[str, Any]] = {}
        for one in heard[way]:
            first.setdefault(one["message_id"], one)
        assert {name for name, one in first.items() if one["kind"] != UNTIMED} <= log
        for task_id, story in stories.items():
            said = [one for one in first.values() if one["task_id"] == task_id and one["kind"] != UNTIMED]
            events = [one for one in said if one["kind"].startswith("evt.")]
            assert [one["message_id"] for one in events] == [str(event["message_id"]) for event in story], way
            assert [int(one["version"]) for one in events] == list(range(1, len(story) + 1))
            endings = {"acme": "evt.task.cancelled.v1.acme"}
            subject = endings.get(story[-1]["workspace"], f"{story[-1]['kind']}.v1")
            assert events[-1]["subject"] == subject
    # The client has checked at least what it says that it heard, and something of every kind.
    checked = heard["counted"]
    assert sum(checked["heard"].values()) >= len(heard["plain"]) + len(heard["stream"])
    assert checked["sent"] == {"cmd.task.submit": 7, "cmd.task.cancel": 2, "cmd.task.execute": TASKS + 3}
    assert checked["answered"] == {"Task": 9, "Problem": len(REFUSED)}
    assert {
        "evt.task.queued", "evt.task.waiting", "evt.task.claimed", "evt.task.completed",
        "evt.task.retry_scheduled", "evt.task.dead", "evt.task.cancelled", "dlq.task.dead",
    } <= checked["heard"].keys()  # fmt: skip


async def test_the_example_of_the_docs_runs_as_it_stands(
    fleet: Fleet, database: Database, broker: LocalNats, plain: Nats, programs: Path
) -> None:
    fleet.start("daemon", "command-server")
    await orders.ready(plain)
    found = re.findall(r"^```js\n(.*?)^```", (ROOT / "docs" / "requests.md").read_text(), re.S | re.M)
    assert len(found) == 1
    (programs / "example.mjs").write_text(found[0])
    async with node(programs / "example.mjs", NATS_URL=broker.url) as example:
        word, task_id, status = (await example.ends()).split()
    assert (word, status) == ("created", "queued")
    row = (await rows_of(database, [task_id]))[task_id]
    assert (row["task_type"], row["status"]) == ("fetch_page", "queued")
