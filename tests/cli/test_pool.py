"""`grns pool`: what somebody at a terminal, or a script, sees of pools and does with them."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from grns.cli import run
from grns.dev.servers import LocalNats
from grns.model.actor import of_process
from grns.postgres.database import Database
from grns.worker import registry as agent
from tests.support.harness import submit_many
from tests.support.store import WORKER, fetch


@dataclass(frozen=True)
class Answer:
    """What one command left behind."""

    code: int
    out: str
    err: str

    @property
    def items(self) -> list[dict[str, Any]]:
        """What it listed for programs."""
        found: list[dict[str, Any]] = json.loads(self.out)["items"]
        return found


Call = Callable[..., Answer]


@pytest.fixture
def grns(
    shared_url: str, broker: LocalNats, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Call:
    """Run commands on the test's own servers, with nothing in the database."""
    monkeypatch.setenv("GRNS_DATABASE_URL", shared_url)
    monkeypatch.setenv("GRNS_NATS_URL", broker.url)

    def call(*arguments: str) -> Answer:
        capfd.readouterr()
        words = arguments if arguments[0] == "worker" else ("pool", *arguments)
        code = run(words)
        return Answer(code, *capfd.readouterr())

    return call


def with_database(url: str, work: Callable[[Database], Awaitable[Any]]) -> Any:
    """Do something in the database that the commands work on."""

    async def do() -> Any:
        database = Database(url, name="test", size=2)
        async with database.opened():
            return await work(database)

    return asyncio.run(do())


async def populate(database: Database) -> None:
    """Let there be a worker of four slots that runs one task, and tasks of two pools."""
    await agent.register(database, WORKER, concurrency=4, version="1")
    await agent.touch(database, WORKER.agent_id, idle_seconds=0.0, running=1)
    await submit_many(database, 2, priority=0)
    await submit_many(database, 3, agent_type="writer")


def test_a_pool_is_paused_listed_and_resumed(grns: Call, shared_url: str) -> None:
    with_database(shared_url, populate)
    paused = grns("pause", "worker", "--reason", "deploy", "--duration", "2h")
    assert (paused.code, paused.out, paused.err) == (0, "worker is paused for 2 h\n", "")
    head, worker, writer = grns("list").out.splitlines()
    assert head.split() == [
        "POOL",
        "WORKERS",
        "RUNNING",
        "QUEUED",
        "BY",
        "PRIORITY",
        "OLDEST",
        "PAUSED",
    ]
    assert worker.split()[:8] == ["worker", "1", "1/4", "2", "2", "0", "0", "0"]
    assert f"by {of_process('cli')}" in worker
    assert re.search(r"Z by \S+, resumes \S+Z \(deploy\)$", worker)
    assert (writer.split()[:8], writer.split()[-1]) == (["writer", "0", "0/0", "3", "0", "0", "3", "0"], "-")
    first, second = grns("list", "-o", "json").items
    assert [(one["task_type"], one["reason"]) for one in first["pauses"]] == [(None, "deploy")]
    assert second["pauses"] == []
    resumed = grns("resume", "worker", "-o", "json")
    assert (resumed.code, json.loads(resumed.out)["paused_by"]) == (0, of_process("cli"))
    assert [row["pauses"] for row in grns("list", "-o", "json").items] == [[], []]


def test_workers_are_listed(grns: Call, shared_url: str) -> None:
    assert grns("worker", "list").err == "no workers\n"
    with_database(shared_url, populate)
    head, row = grns("worker", "list").out.splitlines()
    assert head.split()[:5] == ["WORKER", "RUNNING", "STATE", "SEEN", "WORKED"]
    assert row.split()[:3] == [WORKER.agent_id, "1/4", "alive"]
    (found,) = grns("worker", "list", "-o", "json").items
    assert (found["agent_id"], found["is_alive"]) == (WORKER.agent_id, True)
    assert grns("worker", "list", "--after", "a b").code == 2
    shown = grns("worker", "show", WORKER.agent_id)
    assert (shown.code, "1 of 4 slots" in shown.out) == (0, True)
    assert json.loads(grns("worker", "show", WORKER.agent_id, "-o", "json").out) == found
    assert grns("worker", "show", "nobody").code == 3


def test_who_did_it_is_in_the_log(grns: Call, shared_url: str) -> None:
    assert grns("pause", "worker").code == 0
    assert grns("resume", "worker").code == 0
    rows = with_database(
        shared_url,
        lambda database: fetch(
            database, "select kind, actor from grns.events where kind like 'evt.pool.%' order by seq"
        ),
    )
    assert [tuple(row) for row in rows] == [
        ("evt.pool.paused", of_process("cli")),
        ("evt.pool.resumed", of_process("cli")),
    ]


def test_what_a_budget_has_paused_is_not_resumed(grns: Call, shared_url: str) -> None:
    grns("pause", "worker")
    with_database(shared_url, lambda database: fetch(database, "update grns.pauses set budget = 'writing'"))
    refused = grns("resume", "worker")
    assert refused.code == 4
    assert "the budget writing is used up and has paused worker" in refused.err
    assert "try: grns pool budget list" in refused.err


def test_a_task_type_is_paused_by_itself(grns: Call, shared_url: str) -> None:
    with_database(shared_url, populate)
    assert grns("pause", "worker", "--type", "noop").out == "noop of worker is paused until it is resumed\n"
    refused = grns("resume", "worker")
    assert (refused.code, refused.out) == (4, "")
    assert "grns: worker is not paused\n" in refused.err
    assert "noop of worker is still paused" in refused.err
    assert grns("resume", "worker", "--type", "noop").out == "noop of worker is resumed\n"


def test_a_name_that_nobody_serves_may_be_a_slip(grns: Call) -> None:
    paused = grns("pause", "wrker")
    assert paused.code == 0
    assert paused.err == "pool wrker has no live workers: is the name right?\n"


def test_pools_are_listed_page_by_page(grns: Call, shared_url: str) -> None:
    assert (grns("list").code, grns("list").err) == (0, "no pools\n")
    with_database(shared_url, populate)
    page = grns("list", "--limit", "1", "-o", "jsonl")
    assert json.loads(page.out)["agent_type"] == "worker"
    assert page.err == "there is more: --after worker\n"
    rest = grns("list", "--limit", "1", "--after", "worker", "-o", "jsonl")
    assert (json.loads(rest.out)["agent_type"], rest.err) == ("writer", "")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("pause", "a.b"), "bad_name"),
        (("pause", "instance"), "bad_name"),
        (("pause", "worker", "--type", "*"), "bad_name"),
        (("pause", "worker", "--duration", "soon"), "bad_until"),
        (("pause", "worker", "--duration", "0"), "bad_until"),
        (("pause", "worker", "--reason", "x" * 1001), "bad_reason"),
        (("resume", "a b"), "bad_name"),
        (("list", "--after", "a.b"), "bad_cursor"),
        (("list", "--limit", "0"), "bad_limit"),
    ],
)
def test_what_cannot_be_is_refused_with_its_code(grns: Call, arguments: tuple[str, ...], code: str) -> None:
    refused = grns(*arguments)
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.splitlines()[0].endswith(f"({code})"), refused.err
    assert grns("list").err == "no pools\n"
