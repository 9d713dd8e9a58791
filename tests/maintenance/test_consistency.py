"""`grns admin verify`: nothing is said of what is sound, and each invariant is found by a wound."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from grns.bootstrap import services as daemons
from grns.bootstrap.app import App
from grns.cli import run
from grns.dev.servers import LocalNats
from grns.errors import ContendedError
from grns.maintenance.audit import INVARIANTS
from grns.maintenance.consistency import ConsistencyCheck, ConsistencyMonitor
from grns.maintenance.failovers import note_server
from grns.model.json import DEFAULT_LIMITS
from grns.model.outcome import Verb
from grns.nats import JetStream
from grns.nats.messages import Message, StoredMessage
from grns.postgres.audit_log import note
from grns.postgres.database import Database
from grns.schedules.scheduler import run_now
from grns.settings import load
from grns.tasks import pauses as pause
from grns.telemetry.metrics_listener import MetricsListener
from grns.telemetry.service_signals import InvariantViolated
from grns.telemetry.signal import Signal
from grns.worker import registry as agent
from tests.schedules.test_backfill import fill
from tests.schedules.test_scheduler import let_be_due, put, scheduler, tasks, unreachable
from tests.support.admitters import admit, put_limit
from tests.support.harness import eventually, is_relayed, manage, submit
from tests.support.store import (
    OTHER_WORKER,
    ROADS,
    claim,
    empty,
    fall_due,
    fetch,
    finish,
    place,
    redrive,
    release,
    stranger,
)


async def found(database: Database, stuck_after_seconds: float = 300.0) -> ConsistencyCheck:
    """Look at everything once."""
    inspection = ConsistencyCheck(database, stuck_after_seconds=stuck_after_seconds)
    await inspection.look_at_all()
    return inspection


async def lived(database: Database) -> str:
    """Return a task that has seen much: given back, retried, failed, redriven, and done at last."""
    task_id = (await submit(database, max_attempts=2)).id
    held = await claim(database, task_id)
    await release(database, held)
    await finish(database, await claim(database, task_id), Verb.RETRY)
    await fall_due(database, task_id)
    await finish(database, await claim(database, task_id), Verb.FAIL)
    await redrive(database, task_id)
    await finish(database, await claim(database, task_id))
    return task_id


async def test_nothing_is_said_of_what_is_sound(shared: Database) -> None:
    for road in ROADS:
        await place(shared, road)
    await lived(shared)
    inspection = await found(shared)
    assert inspection.findings == []
    assert inspection.tasks == len(ROADS) + 1
    assert inspection.log_rows > 2 * inspection.tasks


async def test_an_event_that_moves_no_task_is_no_wound(shared: Database) -> None:
    """Also where it is the last that the log says of a task that has gone."""
    ended = (await place(shared, "dead")).id
    said: dict[str, dict[str, Any]] = {
        "evt.task.changed": {"fields": ["priority"], "priority": 0},
        "evt.task.discarded": {"status": "dead"},
    }
    for kind, payload in said.items():
        await note(
            shared, workspace="default", kind=kind, actor=None, task_id=ended,
            payload={"task_id": ended, **payload},
        )  # fmt: skip
    assert (await found(shared)).findings == []
    await fetch(shared, "delete from grns.tasks where id = $1", ended)
    assert (await found(shared)).findings == []


async def test_an_empty_database_is_sound(shared: Database) -> None:
    inspection = await found(shared)
    assert (inspection.tasks, inspection.log_rows, inspection.findings) == (0, 0, [])


# Each wound is cut into the task of `lived`, by somebody who goes past all guards.
_EVENT = "where task_id = $1 and kind"
WOUNDS = {
    "replay": "update grns.tasks set last_message_id = gen_random_uuid() where id = $1",
    "missing_event": f"delete from grns.events {_EVENT} = 'evt.task.released'",
    "transition": f"update grns.events set kind = 'evt.task.waiting' {_EVENT} = 'evt.task.released'",
    "terminal_is_final": "update grns.events set kind = 'evt.task.claimed' where task_id = $1 and version = "
    "(select version + 1 from grns.events where task_id = $1 and kind = 'evt.task.failed')",
    "order": f"update grns.events set seq = nextval('grns.events_seq') {_EVENT} = 'evt.task.released'",
    "missing_message": f"delete from grns.events {_EVENT} = 'dlq.task.failed'",
    "attempts": "update grns.tasks set attempt = attempt + 1 where id = $1",
    "lost_task": "with gone as (delete from grns.tasks where id = $1) "
    "delete from grns.events where task_id = $1 and kind = 'evt.task.completed'",
    "message_id": "update grns.events e set message_id = t.last_message_id from grns.tasks t "
    "where t.id = $1 and e.task_id = t.id and e.kind = 'dlq.task.failed'",
}


@pytest.mark.parametrize("invariant", WOUNDS)
async def test_each_wound_is_found(shared: Database, invariant: str) -> None:
    await place(shared, "succeeded")
    task_id = await lived(shared)
    await fetch(shared, WOUNDS[invariant], task_id)
    inspection = await found(shared)
    assert invariant in inspection.counts
    for finding in inspection.findings:
        assert finding.task_id == task_id, "and of the sound one nothing is said"
        assert finding.detail


async def test_a_command_that_is_missing_is_found(shared: Database) -> None:
    task_id = await lived(shared)
    await fetch(
        shared,
        "update grns.events set route = null where seq = "
        "(select max(seq) from grns.events where route is not null)",
    )
    (finding,) = (await found(shared)).findings
    assert (finding.invariant, finding.task_id) == ("missing_message", task_id)


async def through_all_tasks(inspection: ConsistencyCheck) -> None:
    """Look at tasks until there are no more."""
    while await inspection.look_at_tasks():
        pass


async def test_a_page_that_is_not_answered_is_asked_again_and_shorter(
    database: Database, database_url: str
) -> None:
    """What takes too long here is a table that somebody has locked."""
    ids = [await lived(database) for _ in range(3)]
    await fetch(database, WOUNDS["missing_message"], ids[1])
    hurried = Database(database_url, name="hurried", answer_seconds=0.5)
    async with hurried.opened():
        inspection = ConsistencyCheck(hurried, stuck_after_seconds=300.0)
        async with stranger(database) as connection:
            await connection.execute("set statement_timeout = 0; lock table grns.events")
            for _ in range(3):
                assert await inspection.look_at_tasks(), "there is more to be done"
            assert inspection.tasks == 0
            with pytest.raises(ContendedError):
                await through_all_tasks(inspection)
        await through_all_tasks(inspection)
    assert inspection.tasks == 3
    assert [(one.invariant, one.task_id) for one in inspection.findings] == [("missing_message", ids[1])]


async def test_an_owner_who_never_claimed_is_found(shared: Database) -> None:
    held = await place(shared, "running")
    await fetch(shared, "update grns.tasks set owner_agent_id = 'thief' where id = $1", held.id)
    (finding,) = (await found(shared)).findings
    assert (finding.invariant, finding.task_id) == ("owner", held.id)
    assert "thief" in finding.detail


async def test_attempts_beyond_the_bound_are_found(shared: Database) -> None:
    held = await place(shared, "running_last")
    await fetch(shared, "update grns.tasks set attempt_limit = 0 where id = $1", held.id)
    (finding,) = (await found(shared)).findings
    assert (finding.invariant, finding.task_id) == ("attempts", held.id)


async def test_ended_tasks_may_go_with_the_retention_of_time(shared: Database) -> None:
    task_id = await lived(shared)
    await fetch(shared, "delete from grns.tasks where id = $1", task_id)
    assert (await found(shared)).findings == []


async def test_what_lies_in_partitions_that_have_gone_is_not_asked_for(database: Database) -> None:
    task_id = await lived(database)
    await fetch(database, "select setval('grns.events_seq', 2000005)")
    other = (await submit(database)).id
    await finish(database, await claim(database, other))
    assert (await found(database)).findings == []
    name = (await fetch(database, "select name from grns.log_partitions order by lower_seq limit 1"))[0][
        "name"
    ]
    await fetch(database, f"alter table grns.events detach partition grns.{name}")
    inspection = await found(database)
    assert inspection.findings == []
    assert inspection.tasks == 2
    await fetch(database, "update grns.tasks set version = version + 1 where id <> $1", task_id)
    assert dict((await found(database)).counts) == {"replay": 1}


_PATIENCE_SECONDS = 86_400.0


async def scheduled(database: Database) -> str:
    """Let the scheduler decide about two hours, and a backfill about the one before; return its task."""
    await put(database, overlap="allow", catch_up="all")
    hour = await let_be_due(database, hours=1)
    await scheduler(database).tick()
    before = {task["id"] for task in await tasks(database)}
    assert await fill(database, hour - timedelta(hours=2), hour) == (2, 1, 1)
    await fetch(database, "update grns.events set created_at = created_at - interval '2 h'")
    (task_id,) = {task["id"] for task in await tasks(database)} - before
    return str(task_id)


async def test_decisions_of_schedules_whose_tasks_exist_or_have_ended_are_sound(
    shared: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grns.maintenance.consistency._ROWS", 2)
    ended = await scheduled(shared)
    await run_now(
        shared, unreachable(shared), "hourly", workspace="default", actor="ann", limits=DEFAULT_LIMITS
    )
    await finish(shared, await claim(shared, ended))
    await fetch(shared, "delete from grns.tasks where id = $1", ended)
    inspection = await found(shared, _PATIENCE_SECONDS)
    assert (inspection.schedule_runs, inspection.findings) == (4, [])


async def test_decisions_of_schedules_before_the_log_begins_are_not_checked(shared: Database) -> None:
    task_id = await scheduled(shared)
    await fetch(shared, "delete from grns.tasks where id = $1", task_id)
    await fetch(shared, "delete from grns.events where task_id = $1", task_id)
    assert dict((await found(shared, _PATIENCE_SECONDS)).counts) == {"schedule_run": 1}
    await fetch(shared, "update grns.events set created_at = created_at + interval '2 h'")
    assert (await found(shared, _PATIENCE_SECONDS)).findings == []


BROKEN_RUNS = {
    "is not there": "with lost as (delete from grns.tasks where id = $1)"
    " delete from grns.events where task_id = $1",
    "has the idempotency key schedule/hourly/": "update grns.schedule_runs"
    " set due_at = due_at + interval '1 min' where task_id = $1",
    "has the idempotency key null": "update grns.tasks set idempotency_key = null where id = $1",
    "another task of this time is gr-other": "insert into grns.schedule_runs"
    " (workspace, name, due_at, outcome, task_id, decided_at, source)"
    " select workspace, name, due_at, outcome, 'gr-other', decided_at - interval '1 day', 'run'"
    " from grns.schedule_runs where task_id = $1",
}


@pytest.mark.parametrize("words", BROKEN_RUNS)
async def test_decision_of_a_schedule_that_does_not_match_its_task_is_found(
    shared: Database, words: str
) -> None:
    task_id = await scheduled(shared)
    assert (await found(shared, _PATIENCE_SECONDS)).findings == []
    await fetch(shared, BROKEN_RUNS[words], task_id)
    (finding,) = (await found(shared, _PATIENCE_SECONDS)).findings
    assert finding.invariant == "schedule_run"
    assert words in finding.detail


# ---------------------------------------------------------------- what should have gone on by now


async def queued_for_long(database: Database) -> str:
    """Return a task that has been queued for an hour, while a worker has room and takes nothing."""
    task_id = (await submit(database)).id
    await fetch(database, "update grns.tasks set queued_at = now() - interval '1 h' where id = $1", task_id)
    await agent.register(database, OTHER_WORKER, concurrency=1, version="1")
    await agent.touch(database, OTHER_WORKER.agent_id, idle_seconds=3600.0)
    return task_id


async def expired_for_long(database: Database) -> str:
    """Return a task whose lease has been over for long."""
    held = await place(database, "running")
    await fetch(database, "update grns.tasks set lease_until = now() - interval '1 h' where id = $1", held.id)
    return held.id


async def due_for_long(database: Database) -> str:
    """Return a task that has been due for long."""
    held = await place(database, "retry_wait")
    await fetch(
        database, "update grns.tasks set next_attempt_at = now() - interval '1 h' where id = $1", held.id
    )
    return held.id


async def unpublished_for_long(database: Database) -> str:
    """Return a task whose messages were written long ago."""
    task_id = (await submit(database)).id
    await fetch(database, "update grns.events set created_at = now() - interval '1 h'")
    return task_id


async def test_a_queue_behind_busy_workers_is_long_and_not_stuck(shared: Database) -> None:
    await queued_for_long(shared)
    held = await place(shared, "queued")
    await claim(shared, held.id, who=OTHER_WORKER)
    assert not (await found(shared)).counts


async def test_a_queue_behind_a_worker_that_takes_from_it_is_long_and_not_stuck(shared: Database) -> None:
    """Between two of its tasks it has room, and so it seems idle to whoever looks just then."""
    task_id = await queued_for_long(shared)
    idle = OTHER_WORKER.agent_id
    for idle_seconds, count in ((0.0, 0), (29.0, 0), (31.0, 1)):
        await agent.touch(shared, idle, idle_seconds=idle_seconds)
        assert (await found(shared)).counts["undelivered"] == count, idle_seconds
    await agent.register(shared, OTHER_WORKER, concurrency=1, version="1")
    assert not (await found(shared)).counts, "it has only begun"
    await agent.touch(shared, idle, idle_seconds=3600.0)
    await fetch(shared, "update grns.tasks set queued_at = now() - interval '10 s' where id = $1", task_id)
    await fetch(shared, "update grns.workers set last_seen_at = now() - interval '20 s'")
    assert not (await found(shared, stuck_after_seconds=5.0)).counts, "it was idle before this was queued"


async def test_what_is_stuck_is_told_once_and_the_oldest_first(shared: Database) -> None:
    young, old, urgent = [(await submit(shared, priority=priority)).id for priority in (2, 2, 0)]
    for task_id, hours in ((young, 1), (old, 3), (urgent, 2)):
        await fetch(
            shared,
            "update grns.tasks set queued_at = now() - $2 * interval '1 h' where id = $1",
            task_id,
            hours,
        )
    for number in range(3):  # one of them of another version, which knows one type more
        handled = dict(OTHER_WORKER.handled) | ({"new": 3} if number else {})
        who = replace(OTHER_WORKER, agent_id=f"idle-{number}", handled=handled)
        await agent.register(shared, who, concurrency=1, version="1")
        await agent.touch(shared, who.agent_id, idle_seconds=3600.0)
    assert [one.task_id for one in (await found(shared)).findings] == [old, urgent, young]


async def test_what_nobody_serves_waits_and_is_not_stuck(shared: Database) -> None:
    await queued_for_long(shared)
    await fetch(shared, "update grns.workers set task_types = '{other}'")
    assert not (await found(shared)).counts


@pytest.mark.parametrize(
    ("agent_type", "task_type", "count"),
    [("worker", None, 0), ("worker", "noop", 0), ("worker", "other", 1), ("writer", None, 1)],
)
async def test_what_is_paused_waits_and_is_not_stuck(
    shared: Database, agent_type: str, task_type: str | None, count: int
) -> None:
    await queued_for_long(shared)
    await pause.begin(
        shared, workspace="default", agent_type=agent_type, task_type=task_type, actor="cli:me@here",
        reason=None, until=60.0,
    )  # fmt: skip
    assert (await found(shared)).counts["undelivered"] == count
    await fetch(shared, "update grns.pauses set until = now()")
    assert (await found(shared)).counts["undelivered"] == 1, "and now it is"


async def unfollowed_for_long(database: Database) -> str:
    """Let a task wait for one that has ended an hour ago."""
    first = (await submit(database)).id
    child = (await submit(database, needs=({"task": first},))).id
    await finish(database, await claim(database, first))
    await fetch(
        database,
        "update grns.tasks set updated_at = now() - interval '1 h',"
        " finished_at = finished_at - interval '1 h' where id = any($1)",
        [first, child],
    )
    return child


async def unadmitted_for_long(database: Database) -> str:
    """Let a task wait for room in its limit, and nobody admit it for an hour."""
    await put_limit(database, max_tasks=1)
    await submit(database)
    await admit(database)
    waiting = (await submit(database)).id
    await fetch(database, "update grns.tasks set updated_at = now() - interval '1 h' where id = $1", waiting)
    await fetch(database, "update grns.leases set until = now() - interval '1 h' where name = 'admitter'")
    return waiting


LATE: dict[str, tuple[Callable[[Database], Awaitable[str]], int]] = {
    "undelivered": (queued_for_long, 1),
    "unreaped": (expired_for_long, 1),
    "unpromoted": (due_for_long, 1),
    "unrelayed": (unpublished_for_long, 1),
    "unfollowed": (unfollowed_for_long, 1),
    "unadmitted": (unadmitted_for_long, 1),
}


@pytest.mark.parametrize("invariant", LATE)
async def test_what_is_stuck_is_found(shared: Database, invariant: str) -> None:
    make, count = LATE[invariant]
    task_id = await make(shared)
    inspection = await found(shared)
    assert dict(inspection.counts) == {invariant: count}
    assert {finding.task_id for finding in inspection.findings} == {task_id}
    assert not (await found(shared, stuck_after_seconds=7200.0)).counts


async def test_more_of_a_key_than_its_limit_allows_is_found(shared: Database) -> None:
    await put_limit(shared, max_tasks=2)
    await fetch(shared, "update grns.limits set updated_at = now() - interval '1 h'")
    first, _second = (await submit(shared)).id, (await submit(shared)).id
    await admit(shared)
    assert not (await found(shared)).counts
    await fetch(shared, "update grns.limits set max_tasks = 1")
    inspection = await found(shared)
    assert dict(inspection.counts) == {"over_limit": 1}
    assert inspection.findings[0].task_id == first
    await fetch(shared, "update grns.limits set updated_at = now()")
    assert not (await found(shared)).counts, "they were admitted by what was allowed before"


def test_each_invariant_has_a_test() -> None:
    assert {*WOUNDS, *LATE, "owner", "over_limit", "schedule_run"} == set(INVARIANTS)


# ---------------------------------------------------------------- grns admin verify


def test_the_command_says_what_it_found(
    shared_url: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GRNS_DATABASE_URL", shared_url)

    async def with_database(work: Callable[[Database], Awaitable[Any]]) -> None:
        database = Database(shared_url, name="test", size=2)
        await database.connect()
        await work(database)
        await database.close()

    asyncio.run(with_database(empty))
    asyncio.run(with_database(lived))
    assert run(["admin", "verify"]) == 0
    out, err = capfd.readouterr()
    assert [line.split()[:2] for line in out.splitlines()[1:]] == [[name, "0"] for name in INVARIANTS]
    assert "checked 1 tasks" in err

    asyncio.run(with_database(expired_for_long))
    assert run(["admin", "verify"]) == 1
    out, err = capfd.readouterr()
    assert "unreaped: gr-" in out
    assert "grns: invariants are violated" in err

    assert run(["admin", "verify", "-o", "json"]) == 1
    record = json.loads(capfd.readouterr().out)
    assert record["is_sound"] is False
    assert record["tasks"] == 2
    assert record["violations"] == {"unreaped": 1}
    assert record["findings"][0]["invariant"] == "unreaped"

    assert run(["admin", "verify", "--stuck-after", "7200", "-o", "json"]) == 0
    assert json.loads(capfd.readouterr().out)["is_sound"] is True


@pytest.fixture
def servers(shared_url: str, broker: LocalNats, monkeypatch: pytest.MonkeyPatch) -> LocalNats:
    """Let the command line find the test's own servers; returns the broker."""
    monkeypatch.setenv("GRNS_DATABASE_URL", shared_url)
    monkeypatch.setenv("GRNS_NATS_URL", broker.url)
    return broker


async def fail_over(url: str, *, is_noted: bool = True, kept_versions: int = 8) -> str:
    """Leave a database as a failover does that has lost the last published events of a task; returns its id.

    Where none of its versions is kept, the task is lost too, and what is left is sound.
    """
    database = Database(url, name="test", size=2)
    await database.connect()
    await empty(database)
    await note_server(database)
    await fetch(database, "update grns.server set timeline = timeline + 1")
    task_id = await lived(database)
    app = App(load())
    transport = app.transport("test")
    await transport.connect()
    relay = daemons.relay(app, database, transport)
    running = asyncio.create_task(relay.run())
    await eventually(lambda: is_relayed(database))
    await fetch(
        database, "delete from grns.events where task_id = $1 and version > $2", task_id, kept_versions
    )
    await fetch(database, "delete from grns.tasks where id = $1 and $2 = 0", task_id, kept_versions)
    await transport.publish(Message("evt.task.dead.v1", b"{", "forged", {"Grns-Seq": "9" * 30}))
    await transport.publish(Message("evt.task.dead.v1", b"{", "nobody", {}))
    if is_noted:
        await note_server(database)
    relay.stop()
    await running
    await transport.close()
    await database.close()
    return task_id


@pytest.mark.parametrize("is_noted", [True, False], ids=["noted", "not_noted"])
def test_a_failover_is_shown_with_what_it_lost(
    servers: LocalNats, shared_url: str, capfd: pytest.CaptureFixture[str], is_noted: bool
) -> None:
    task_id = asyncio.run(fail_over(shared_url, is_noted=is_noted))
    assert run(["admin", "verify"]) == 1
    out, err = capfd.readouterr()
    lines = [line.split() for line in out.splitlines() if task_id in line and "evt." in line]
    assert [line[-3:] for line in lines] == [
        ["9", "evt.task.claimed", "succeeded"],
        ["10", "evt.task.completed", "succeeded"],
    ]
    assert "timeline 2 of" in out
    assert ("not recorded yet" in out) is not is_noted
    assert ("--known-failovers" if is_noted else "grns daemon janitor") in err
    assert "a failover of Postgres lost 2 messages" in err
    assert "never published" in err
    assert "GRNS_EVT reaches back to" in err
    assert run(["admin", "verify", "-o", "json"]) == 1
    record = json.loads(capfd.readouterr().out)
    (failover,) = record["failovers"]
    assert (failover["id"] is not None) is is_noted
    assert [one["failover"] for one in record["lost"]] == [failover["id"]] * 2


def test_a_stream_that_goes_while_it_is_read_is_said_and_is_no_finding(
    servers: LocalNats, shared_url: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(fail_over(shared_url, kept_versions=0))
    read = JetStream.stored

    async def interrupted(self: JetStream, stream: str, **bounds: Any) -> AsyncIterator[StoredMessage]:
        await manage(servers.url, f"STREAM.DELETE.{stream}")
        async for message in read(self, stream, **bounds):
            yield message

    monkeypatch.setattr(JetStream, "stored", interrupted)
    assert run(["admin", "verify", "-o", "json"]) == 5
    out, err = capfd.readouterr()
    record = json.loads(out)
    assert (record["is_sound"], record["lost"], len(record["failovers"])) == (True, None, 1)
    assert "no such stream" in record["lost_not_looked_for"]
    assert "was not looked for: the broker has no such stream" in err


# ---------------------------------------------------------------- the janitor's rounds


async def test_the_rounds_find_it_and_tell_how_often(shared: Database) -> None:
    task_id = await lived(shared)
    await fetch(shared, WOUNDS["missing_message"], task_id)
    await expired_for_long(shared)
    metrics = MetricsListener()
    told: list[Signal] = []

    def emit(signal: Signal) -> None:
        metrics.receive(signal)
        told.append(signal)

    inspector = ConsistencyMonitor(shared, stuck_after_seconds=300.0, every_seconds=3600.0, emit=emit)
    while await inspector.step():
        pass
    assert [signal.invariant for signal in told if isinstance(signal, InvariantViolated)] == [
        "unreaped",
        "missing_message",
    ]
    for name in INVARIANTS:
        value = metrics.registry.get_sample_value("grns_invariant_violations", {"invariant": name})
        assert value == (name in ("unreaped", "missing_message")), name
    told.clear()
    assert not await inspector.step(), "the next round comes in an hour"
    assert told == []
