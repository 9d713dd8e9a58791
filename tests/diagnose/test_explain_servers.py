"""Why a task is where it is, on a real database and broker: what is read, for whom, and how it is told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

import grns
from grns.access.isolation import as_tenant
from grns.bootstrap.app import App
from grns.cli import run
from grns.dev.servers import LocalNats
from grns.diagnose.explain.collect import Explainer
from grns.diagnose.explain.explanation import Explanation
from grns.diagnose.explain.read import read_story
from grns.errors import NotFoundError
from grns.model import subjects
from grns.model.outcome import Verb
from grns.nats import JetStream
from grns.postgres.database import Database
from grns.tasks import pauses as pause
from grns.worker import registry as agent
from grns.worker.claims import Claimant
from tests.support.admitters import put_limit
from tests.support.aggregators import begin_here, count_all
from tests.support.attempts import attempts_of
from tests.support.harness import settings_for, submit, submit_many
from tests.support.store import (
    ACTOR,
    FINGERPRINT,
    ROADS,
    WORKER,
    cancel,
    claim,
    empty,
    fall_due,
    fetch,
    finish,
    lapse,
    locked,
    place,
    redrive,
)

READER = Claimant("reader-one", "default", "worker", {"read": 3}, 15.0)


def explainer(whole: Database, **around: Any) -> Explainer:
    """Return what explains tasks of the default workspace; the broker is away."""
    app = App(settings_for(whole.url))
    said: dict[str, Any] = {"database": whole, "transport": app.transport("test"), "workspace": "default"}
    return Explainer(whole=whole, **{**said, **around})


async def why(whole: Database, task_id: str, **around: Any) -> Explanation:
    """Return why a task is where it is."""
    return await explainer(whole, **around).explain(task_id)


def words(found: Explanation) -> list[str]:
    """Return the words of all reasons but that the broker is away."""
    return [one.word for one in found.reasons if one.word != "broker_away"]


@pytest.mark.parametrize("road", ROADS)
async def test_wherever_a_task_is_something_is_said(shared: Database, road: str) -> None:
    task_id = (await place(shared, road)).id
    found = await why(shared, task_id)
    assert found.sentence
    assert (found.task_id, found.workspace, found.agent_type) == (task_id, "default", "worker")
    assert found.steps[0].kind.startswith("evt.task.")
    assert found.steps[-1].version == max(step.version for step in found.steps)


Prepare = Callable[[Database, str], Awaitable[object]]


async def _workers(database: Database, claimant: Claimant = WORKER, running: int = 0) -> None:
    await agent.register(database, claimant, concurrency=4, version="1")
    await agent.touch(database, claimant.agent_id, idle_seconds=0.0, running=running)


async def _silent(database: Database, _task_id: str) -> None:
    await _workers(database)
    await fetch(database, "update grns.workers set last_seen_at = now() - interval '3 min'")


async def _pause(database: Database, task_type: str | None) -> None:
    await pause.begin(
        database,
        workspace="default",
        agent_type="worker",
        task_type=task_type,
        actor=ACTOR,
        reason="why",
        until=None,
    )


# What is around a queued task, and the words for it.
AROUND: dict[str, tuple[Prepare, list[str]]] = {
    "nobody": (lambda _database, _task_id: asyncio.sleep(0), ["no_worker"]),
    "somebody silent": (_silent, ["no_worker"]),
    "somebody else": (lambda database, _: _workers(database, READER), ["no_handler"]),
    "room": (lambda database, _: _workers(database), []),
    "no room": (lambda database, _: _workers(database, running=4), ["backlog"]),
    "a pause": (lambda database, _: _pause(database, None), ["paused", "no_worker"]),
    "a pause of its type": (lambda database, _: _pause(database, "noop"), ["paused", "no_worker"]),
    "a pause of another type": (lambda database, _: _pause(database, "other"), ["no_worker"]),
}


@pytest.mark.parametrize("around", AROUND)
async def test_what_is_around_a_queued_task_is_seen(shared: Database, around: str) -> None:
    prepare, expected = AROUND[around]
    task_id = (await submit(shared)).id
    await prepare(shared, task_id)
    await fetch(shared, "update grns.relay_cursor set low = (select last_value from grns.events_seq)")
    assert words(await why(shared, task_id)) == expected


async def test_a_queue_is_as_long_as_what_comes_first(shared: Database) -> None:
    await submit_many(shared, 3, priority=1)
    await submit_many(shared, 2, priority=2)
    mine = (await submit(shared, priority=2)).id
    await submit_many(shared, 4, priority=2)
    await submit_many(shared, 5, priority=3)
    await submit_many(shared, 6, priority=0, agent_type="writer")
    await _workers(shared, running=4)
    assert "5 tasks of the pool run first" in (await why(shared, mine)).sentence


async def test_who_has_locked_a_task_is_told(shared: Database) -> None:
    task_id = (await submit(shared)).id
    await _workers(shared)
    async with locked(shared, task_id) as connection:
        await fetch(shared, "select pg_sleep(1.1)")
        found = await why(shared, task_id)
        pid = await connection.fetchval("select pg_backend_pid()")
        bound = await why(shared, task_id, is_bound=True)
    assert (found.reason, found.claim) == ("locked", "locked")
    assert f"process {pid} of Postgres" in found.sentence
    assert bound.reason == "locked"
    assert str(pid) not in bound.sentence
    assert "locked" not in words(await why(shared, task_id))


async def test_a_command_that_is_not_published_is_told(shared: Database) -> None:
    task_id = (await submit(shared)).id
    await _workers(shared)
    await fetch(
        shared,
        "update grns.relay_cursor set low = 0, published = '{}'",
    )
    await fetch(shared, "update grns.leases set until = now() - interval '1 min'")
    await fetch(shared, "update grns.events set created_at = now() - interval '9 s'")
    found = await why(shared, task_id)
    assert found.reason == "not_published"
    assert "no relay is running" in found.sentence
    await fetch(
        shared,
        "update grns.relay_cursor set published = int8multirange(int8range(0, (select last_value + 1 from"
        " grns.events_seq)))",
    )
    assert "not_published" not in words(await why(shared, task_id)), "published beyond the cursor"


async def test_a_run_is_told_with_who_runs_it(shared: Database) -> None:
    await agent.register(shared, WORKER, concurrency=4, version="9.9")
    task_id = (await submit(shared, max_attempts=5)).id
    await claim(shared, task_id)
    found = await why(shared, task_id)
    assert (found.reason, found.claim, found.attempt, found.attempt_limit) == ("running", "lost_race", 1, 5)
    assert f"{WORKER.agent_id} (" in found.sentence
    assert "grns 9.9" in found.sentence
    await lapse(shared, task_id)
    assert (await why(shared, task_id)).reason == "unreaped", "no reaper has ever looked"
    await fetch(
        shared, "update grns.reaper_state set last_tick_at = now(), hold_until = now() + interval '9 s'"
    )
    assert "in which live workers renew first" in (await why(shared, task_id)).sentence


async def test_whoever_asked_for_the_end_is_told(shared: Database) -> None:
    task_id = (await submit(shared)).id
    await claim(shared, task_id)
    await cancel(shared, task_id, reason="not needed")
    found = await why(shared, task_id)
    assert found.reason == "cancelling"
    assert ACTOR in found.sentence
    assert "(not needed)" in found.sentence


async def test_a_dead_task_is_told_with_its_issue(shared: Database) -> None:
    await begin_here(shared)
    for _ in range(3):
        task_id = (await submit(shared, max_attempts=1)).id
        await finish(shared, await claim(shared, task_id), Verb.RETRY)
    assert words(await why(shared, task_id)) == ["dead"], "it is not counted yet"
    await count_all(shared)
    found = await why(shared, task_id)
    assert words(found) == ["dead", "issue"]
    assert "2 other tasks dead or failed with it" in found.reasons[1].sentence
    assert f"grns issue show {FINGERPRINT}" in found.next_steps


async def test_a_task_that_has_seen_much_has_a_long_story(shared: Database) -> None:
    task_id = (await submit(shared)).id
    await finish(shared, await claim(shared, task_id), Verb.RETRY)
    await fall_due(shared, task_id)
    await finish(shared, await claim(shared, task_id), Verb.FAIL)
    await redrive(shared, task_id)
    told = [step.sentence for step in (await why(shared, task_id)).steps if step.kind.startswith("evt.")]
    assert told[0].startswith("submitted")
    assert told[2].startswith("ValueError: no such thing; retry at ")
    assert told[-1] == f"redriven by {ACTOR}, with its attempts reset"


async def test_a_story_tells_what_a_task_waits_for(shared: Database) -> None:
    await put_limit(shared, max_tasks=1)
    limited = (await submit(shared)).id
    needy = (await submit(shared, needs=({"task": limited},))).id
    assert (await why(shared, limited)).steps[0].sentence.endswith("waits for room in its limits")
    assert (await why(shared, needy)).steps[0].sentence.endswith("waits for tasks")


async def test_a_story_carries_no_payloads(shared: Database) -> None:
    task_id = (await submit(shared, max_attempts=1, payload={"text": "canary-7f3a" * 1000})).id
    await finish(shared, await claim(shared, task_id), Verb.FAIL)
    rows = await read_story(shared, task_id, workspace="default")
    assert [row["kind"] for row in rows][-1] == "dlq.task.failed"
    assert "canary" not in str(rows)
    assert rows[-2]["payload"]["error"] == {"class": "ValueError", "message": "no such thing"}
    assert [row["version"] for row in await read_story(shared, task_id, workspace="default", version=2)] == [
        1,
        2,
    ]


async def test_of_a_deleted_task_the_log_tells(shared: Database) -> None:
    task_id = (await place(shared, "cancelled")).id
    await fetch(shared, "delete from grns.tasks where id = $1", task_id)
    found = await why(shared, task_id)
    assert (found.reason, found.status) == ("deleted", "cancelled")
    with pytest.raises(NotFoundError):
        await why(shared, "gr-nobody")
    with pytest.raises(NotFoundError):
        await why(shared, task_id, workspace="other")


async def test_a_tenant_sees_what_is_its_own(shared: Database) -> None:
    mine = (await submit(shared, workspace="acme")).id
    others = (await submit(shared)).id
    async with as_tenant(shared, "acme") as session:
        assert words(await why(shared, mine, database=session, workspace="acme"))[0] == "no_worker"
        with pytest.raises(NotFoundError):
            await why(shared, others, database=session, workspace="acme")


# ---------------------------------------------------------------- with a broker


@pytest.fixture
async def transport(shared: Database, broker: LocalNats) -> AsyncIterator[JetStream]:
    """A connection to a broker with its streams, and no durables."""
    transport = App(settings_for(shared.url, broker.url)).transport("test")
    await transport.connect()
    await transport.provision()
    yield transport
    await transport.close()


async def test_the_lane_is_looked_at(shared: Database, transport: JetStream) -> None:
    task_id = (await submit(shared)).id
    await _workers(shared)
    await fetch(shared, "update grns.relay_cursor set low = (select last_value from grns.events_seq)")
    missing = await why(shared, task_id, transport=transport)
    assert words(missing) == ["not_fetched"]
    assert "has no durable" in missing.sentence
    lane = subjects.priority_subject("default", "worker", 2)
    consumer = await transport.consume(lane, lambda _delivery: None, depth=1)
    assert await transport.pause(lane, seconds=60.0)
    assert words(await why(shared, task_id, transport=transport)) == ["subject_paused"]
    await transport.pause(lane, seconds=0.0)
    await consumer.stop()


# ---------------------------------------------------------------- at a terminal


def test_it_is_told_at_a_terminal(
    shared_url: str, broker: LocalNats, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GRNS_DATABASE_URL", shared_url)
    monkeypatch.setenv("GRNS_NATS_URL", broker.url)

    async def make() -> str:
        database = Database(shared_url, name="test", size=2)
        async with database.opened():
            await empty(database)
            return (await submit(database, "odd", payload={"text": "\x1b[31m"})).id

    task_id = asyncio.run(make())
    assert run(["explain", task_id]) == 0
    told = capfd.readouterr()
    first, *rest = told.out.splitlines()
    assert first.startswith("queued for ")
    assert "the pool worker has no live worker" in first
    assert "  try: grns pool list" in rest
    assert any("submitted to the pool worker, priority 2" in line for line in rest)
    assert run(["explain", task_id, "-o", "json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert (found["reason"], found["status"], len(found["steps"])) == ("no_worker", "queued", 1)
    monkeypatch.setenv("GRNS_NATS_URL", "nats://127.0.0.1:1")
    monkeypatch.setenv("GRNS_NATS_STARTUP_SECONDS", "0.2")
    assert run(["explain", task_id, "-o", "json"]) == 0
    assert "broker_away" in [one["word"] for one in json.loads(capfd.readouterr().out)["reasons"]]
    assert run(["explain", "gr-nobody"]) == 3
    assert run(["explain", "a.b"]) == 2


async def test_what_a_handler_waits_for_is_told(shared: Database) -> None:
    pool = grns.Pool("worker")

    @pool.task("noop")
    async def approve(payload: dict[str, Any], ctx: grns.Context) -> None:
        if payload["sleeps"]:
            await ctx.sleep(3600)
        await ctx.wait_for_signal("approved", timeout=payload.get("timeout"))

    async def told(**payload: Any) -> tuple[str, str, tuple[str, ...], str]:
        task = await submit(shared, payload=payload)
        assert await attempts.run(task.id) == "waiting"
        said = await why(shared, task.id)
        return said.reasons[0].word, said.reasons[0].sentence, tuple(said.next_steps), said.steps[-1].sentence

    with attempts_of(pool, shared) as attempts:
        code, sentence, steps, last = await told(sleeps=False)
        assert (code, sentence) == ("signal", "waiting for the signal approved")
        assert "grns task signal" in steps[0]
        assert last == "waits for a signal, in the step 'signal approved'"
        _, sentence, _, _ = await told(sleeps=False, timeout=3600)
        assert "approved, until" in sentence
        code, sentence, _, last = await told(sleeps=True)
        assert code == "not_due"
        assert sentence.startswith("sleeping in its step 'sleep' until")
        assert last.startswith("sleeps until")
