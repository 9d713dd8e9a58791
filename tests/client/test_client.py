"""The client, on real servers: submit, ask, wait, end, open again."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg
import nats
import pytest

import grns
from grns.client.client import Client
from grns.client.handle import TaskHandle
from grns.dev.servers import LocalNats
from grns.errors import (
    ConflictError,
    ContendedError,
    InvalidInputError,
    NotFoundError,
    OutcomeUnknownError,
    UnavailableError,
    WaitTimeoutError,
)
from grns.model.outcome import Verb
from grns.model.task import TaskStatus
from grns.postgres.database import Database
from tests.support.harness import eventually
from tests.support.store import (
    ROADS,
    claim,
    fetch,
    finish,
    is_waiting_for_lock,
    kinds_of,
    place,
    release,
    stranger,
)


@pytest.fixture
async def client(shared: Database) -> AsyncIterator[Client]:
    """A client that has no broker: everything here works with Postgres alone."""
    async with grns.connect(database_url=shared.url, nats_url="nats://127.0.0.1:1") as client:
        yield client


# ---------------------------------------------------------------- submit and get


async def test_what_was_submitted_can_be_read(client: Client) -> None:
    causation_id = uuid4()
    submitted = await client.submit(
        "noop", {"n": 2**53 + 1, "x": 1e300, "": None}, pool="scout", priority=0, max_attempts=7,
        idempotency_key="k", trace_id="tr-1", causation_id=causation_id,
    )  # fmt: skip
    assert (submitted.created, submitted.trace_id) == (True, "tr-1")
    task = await client.get(submitted.id)
    assert task.payload == {"n": 2**53 + 1, "x": 1e300, "": None}
    assert isinstance(task.payload["x"], float)
    said = (task.task_type, task.agent_type, task.priority, task.max_attempts, task.workspace)
    assert said == ("noop", "scout", 0, 7, "default")
    assert (task.status, task.attempt, task.version, task.is_terminal) == (TaskStatus.QUEUED, 0, 1, False)
    assert (task.idempotency_key, task.trace_id, task.causation_id) == ("k", "tr-1", causation_id)
    assert task.created_at.utcoffset() is not None
    assert [entry.kind for entry in await client.events(task.id)] == ["evt.task.queued"]


async def test_a_delayed_task_waits(client: Client) -> None:
    task = await client.get((await client.submit("noop", pool="worker", delay=60)).id)
    assert task.status is TaskStatus.WAITING
    assert task.next_attempt_at is not None
    assert (task.next_attempt_at - task.created_at).total_seconds() == 60


async def test_a_key_returns_its_task_or_is_a_conflict(client: Client) -> None:
    first = await client.submit("noop", {"n": 1}, pool="worker", idempotency_key="k")
    again = await client.submit("noop", {"n": 1}, pool="worker", idempotency_key="k")
    assert (again.id, again.created) == (first.id, False)
    with pytest.raises(ConflictError, match=first.id):
        await client.submit("noop", {"n": 2}, pool="worker", idempotency_key="k")


async def test_many_are_answered_in_their_order(client: Client, shared: Database) -> None:
    taken = await client.submit("noop", {"n": -1}, pool="worker", idempotency_key="taken")
    said: list[dict[str, Any]] = [
        {"task": "noop", "pool": "worker", "payload": {"n": n}} for n in range(1200)
    ]
    said[700]["idempotency_key"] = "taken"
    answers = await client.submit_many(iter(said))
    assert isinstance(answers[700], ConflictError)
    created = [answer for answer in answers if isinstance(answer, TaskHandle)]
    assert len(created) == 1199
    rows = await fetch(
        shared, "select id, (payload->>'n')::int as n from grns.tasks where id <> $1", taken.id
    )
    places = {row["id"]: row["n"] for row in rows}
    assert [places[answer.id] for answer in created] == [n for n in range(1200) if n != 700]
    ids = [answer.id for answer in created]
    assert ids == sorted(ids), "limits admit tasks of one age by their ids"


async def test_none_of_many_is_created_where_one_is_bad(client: Client, shared: Database) -> None:
    with pytest.raises(InvalidInputError):
        await client.submit_many([{"task": "noop", "pool": "worker"}] * 600 + [{"task": "a.b"}])
    assert not await fetch(shared, "select from grns.tasks")
    assert await client.submit_many([]) == []


_CUT = """
    select pg_terminate_backend(pid) from pg_stat_activity
    where datname = current_database() and application_name = $1 and wait_event_type = 'Lock'
"""
_HELD = "select grns.submit_task('noop', idempotency_key => key) from unnest($1::text[]) as key"


def _parts(count: int, **held: int) -> list[dict[str, Any]]:
    """Return submissions for so many transactions; each key stands at the beginning of a part."""
    said: list[dict[str, Any]] = [{"task": "noop", "pool": "worker"} for _ in range(500 * count)]
    for key, part in held.items():
        said[500 * part] = {"task": "noop", "pool": "worker", "idempotency_key": key}
    return said


async def _others_have_ended(known: set[asyncio.Task[Any]]) -> None:
    """Wait for whatever was begun meanwhile and was left running."""
    if left := asyncio.all_tasks() - known:
        await asyncio.wait(left)


async def test_of_many_that_exist_in_part_each_ones_fate_is_told(client: Client, shared: Database) -> None:
    """Nobody may take it for "nothing was done", and submit all of them again."""
    async with stranger(shared) as other:
        await other.execute(_HELD, ["held"])
        with pytest.raises(OutcomeUnknownError, match="500 of 1000 exist, 0 may") as raised:
            await client.submit_many(_parts(2, held=0))
    fates = raised.value.answers
    assert all(isinstance(fate, ContendedError) for fate in fates[:500])
    assert all(isinstance(fate, TaskHandle) and fate.created for fate in fates[500:])
    rows = await fetch(shared, "select id from grns.tasks")
    assert {row["id"] for row in rows} == {fate.id for fate in fates[500:]}


async def test_of_many_that_may_exist_is_told_that_they_may(client: Client, shared: Database) -> None:
    async with stranger(shared) as other:
        await other.execute(_HELD, ["held"])
        asked = asyncio.create_task(client.submit_many(_parts(1, held=0)))
        application = f"grns client {os.getpid()}"
        await eventually(lambda: is_waiting_for_lock(shared, application))
        await other.execute(_CUT, application)
        with pytest.raises(OutcomeUnknownError, match="0 of 500 exist, 500 may") as raised:
            await asked
    assert {type(fate) for fate in raised.value.answers} == {OutcomeUnknownError}


async def test_of_many_no_part_is_begun_after_one_has_failed(client: Client, shared: Database) -> None:
    """What is raised says that none exists, and none comes into being afterwards."""
    known = asyncio.all_tasks()
    async with stranger(shared) as other:
        await other.execute(_HELD, ["one", "two"])
        with pytest.raises(ContendedError):
            await client.submit_many(_parts(5, one=0, two=1))
    await _others_have_ended(known)
    assert not await fetch(shared, "select from grns.tasks")


async def test_in_the_callers_transaction(client: Client, shared: Database) -> None:
    connection = await asyncpg.connect(shared.url)
    try:
        transaction = connection.transaction()
        await transaction.start()
        one = await client.submit("noop", pool="worker", connection=connection)
        many = await client.submit_many([{"task": "noop", "pool": "worker"}] * 3, connection=connection)
        with pytest.raises(NotFoundError):
            await client.get(one.id)
        await transaction.commit()
    finally:
        await connection.close()
    for answer in [one, *many]:
        assert isinstance(answer, TaskHandle)
        assert (await client.get(answer.id)).status is TaskStatus.QUEUED


async def test_what_is_not_there_is_not_found(client: Client, shared: Database) -> None:
    (row,) = await fetch(shared, "select grns.submit_task('noop', workspace => 'elsewhere') as id")
    for task_id in ("gr-nothing", row["id"]):
        for call in (client.get, client.cancel, client.redrive, client.wait):
            with pytest.raises(NotFoundError):
                await call(task_id)
        assert await client.cancel_many([task_id]) == {}
        assert await client.redrive_many([task_id]) == {}
        assert await client.events(task_id) == []
    assert await kinds_of(shared, row["id"]) == ["evt.task.queued", "cmd.task.execute"]


# ---------------------------------------------------------------- wait


async def test_wait_returns_what_has_ended_already(client: Client, shared: Database) -> None:
    done = await place(shared, "succeeded")
    task = await client.wait(done.id, timeout=5)
    assert (task.status, task.result, task.result_ref) == (
        TaskStatus.SUCCEEDED, {"answer": 42}, f"db://tasks/{done.id}",
    )  # fmt: skip
    failed = await client.wait((await place(shared, "failed")).id, timeout=0)
    assert failed.last_error == {"class": "ValueError", "message": "no such thing"}


async def test_wait_returns_when_it_ends(client: Client, shared: Database) -> None:
    owners = [await place(shared, "running") for _ in range(3)]
    waits = [asyncio.create_task(client.wait(owner.id, timeout=20)) for owner in owners]
    done, _ = await asyncio.wait(waits, timeout=0.1)
    assert not done
    await finish(shared, owners[0], Verb.RETRY)
    await finish(shared, owners[1], Verb.FAIL)
    await finish(shared, owners[2], Verb.SUCCEED)
    assert [(await wait).status for wait in waits[1:]] == [TaskStatus.FAILED, TaskStatus.SUCCEEDED]
    assert not waits[0].done(), "a retry is no end"
    await client.cancel(owners[0].id)
    assert (await waits[0]).status is TaskStatus.CANCELLED


async def test_wait_ends_in_time(client: Client, shared: Database) -> None:
    owner = await place(shared, "running")
    for seconds in (0, -1, 0.05):
        with pytest.raises(WaitTimeoutError, match=owner.id):
            await client.wait(owner.id, timeout=seconds)


_LOCK_ALL = "lock table grns.tasks in access exclusive mode"


async def test_wait_goes_on_while_postgres_is_away(client: Client, shared: Database) -> None:
    """Whoever submits and waits would take it for a submission that failed, and submit again."""
    owner = await place(shared, "running")
    application = f"grns client {os.getpid()}"
    async with stranger(shared) as other:
        await other.execute(_LOCK_ALL)
        waiting = asyncio.create_task(client.wait(owner.id, timeout=20))
        for _ in range(3):
            await eventually(lambda: is_waiting_for_lock(shared, application))
            await other.execute(_CUT, application)
            await eventually(lambda: _is_cut(shared, application))
    await finish(shared, owner)
    assert (await waiting).status is TaskStatus.SUCCEEDED


async def _is_cut(database: Database, application: str) -> bool:
    return not await is_waiting_for_lock(database, application)


async def test_wait_says_why_it_knows_nothing(client: Client, shared: Database) -> None:
    owner = await place(shared, "running")
    async with stranger(shared) as other:
        await other.execute(_LOCK_ALL)
        with pytest.raises(WaitTimeoutError, match="lock timeout"):
            await client.wait(owner.id, timeout=0)


async def test_wait_does_not_wait_for_what_only_somebody_can_mend(shared: Database) -> None:
    place = urlsplit(shared.url)._replace(path="/postgres").geturl()
    async with grns.connect(database_url=place, nats_url="nats://127.0.0.1:1") as client:
        with pytest.raises(UnavailableError, match="grns admin db upgrade"):
            await client.wait("gr-0")


# ---------------------------------------------------------------- cancel and redrive


@pytest.mark.parametrize("road", ROADS)
async def test_cancel_and_redrive_wherever_it_is(client: Client, shared: Database, road: str) -> None:
    """One answer, consistent with the log."""
    for call, by in ((client.cancel, "cancel"), (client.redrive, "redrive")):
        task_id = (await place(shared, road)).id
        before = await client.get(task_id)
        log = await client.events(task_id)
        answer = await call(task_id)
        after = await client.get(task_id)
        news = [entry.kind for entry in (await client.events(task_id))[len(log) :]]
        expected = _answer(by, before.status)
        assert answer == expected
        if answer == "cancelled" and before.status is not TaskStatus.CANCELLED:
            assert (after.status, news) == (TaskStatus.CANCELLED, ["evt.task.cancelled"])
        elif answer == "redriven":
            assert (after.status, after.uncounted_attempts) == (TaskStatus.QUEUED, before.attempt)
            assert news == ["evt.task.queued"]
            assert after.cancel_requested_at is None
        else:
            assert (after.status, after.version, news) == (before.status, before.version, [])
        assert (after.cancel_requested_at is not None) == (
            answer == "requested" or (by == "cancel" and after.status is TaskStatus.CANCELLED)
            or (answer != "redriven" and before.cancel_requested_at is not None)
        )  # fmt: skip


def _answer(by: str, status: TaskStatus) -> str:
    if by == "redrive":
        is_open = status in (TaskStatus.DEAD, TaskStatus.FAILED, TaskStatus.CANCELLED)
        return "redriven" if is_open else status.value
    if status in (TaskStatus.QUEUED, TaskStatus.WAITING, TaskStatus.RETRY_WAIT):
        return "cancelled"
    return "requested" if status is TaskStatus.RUNNING else status.value


async def test_the_reason_of_a_cancellation_is_told(client: Client, shared: Database) -> None:
    task_id = (await client.submit("noop", pool="worker")).id
    assert await client.cancel(task_id, reason="a\x00b \ud800 " + "x" * 5000) == "cancelled"
    told = (await client.events(task_id))[-1].payload
    assert told["reason"].startswith(r"a\x00b \ud800 xxx")
    assert len(told["reason"]) <= 1000


async def test_many_are_cancelled_and_opened_again(client: Client, shared: Database) -> None:
    queued, running = (await client.submit("noop", pool="worker")).id, (await place(shared, "running")).id
    dead = (await place(shared, "dead")).id
    ids = [queued, "gr-nothing", running, dead, queued]
    assert await client.cancel_many(ids) == {queued: "cancelled", running: "requested", dead: "dead"}
    assert await client.redrive_many(ids) == {queued: "redriven", running: "running", dead: "redriven"}


async def test_a_task_opened_again_has_a_fresh_budget(client: Client, shared: Database) -> None:
    dead = await place(shared, "dead")
    await client.redrive(dead.id)
    owner = await claim(shared, dead.id)
    assert (owner.attempt, owner.counted_attempts) == (2, 1)
    assert (await release(shared, owner))[dead.id] == "queued"


# ---------------------------------------------------------------- with a broker, and without Postgres


async def test_who_works_is_told_at_once(shared: Database, broker: LocalNats) -> None:
    """Hints on core NATS: to the relay that there is news, to a worker that its task was cancelled."""
    hints: list[str] = []

    async def note(message: Any) -> None:
        hints.append(message.subject)

    owner = await place(shared, "running")
    listener = await nats.connect(broker.url)
    try:
        await listener.subscribe("nudge.>", cb=note)
        await listener.flush()
        async with grns.connect(database_url=shared.url, nats_url=broker.url) as client:

            async def is_heard() -> bool:
                await client.submit("noop", pool="worker")  # until the broker is connected to, hints are lost
                return "nudge.relay.v1" in hints

            async def is_told() -> bool:
                return "nudge.lease.v1.worker-one" in hints

            await eventually(is_heard)
            await client.cancel(owner.id)
            await eventually(is_told)
    finally:
        await listener.close()


async def test_without_postgres_there_is_no_client() -> None:
    with pytest.raises(UnavailableError, match="GRNS_DATABASE_URL"):
        async with grns.connect(database_url="postgresql://127.0.0.1:1/nobody"):
            raise AssertionError("there is nobody to connect to")


async def test_a_closed_client_is_unavailable(shared: Database) -> None:
    async with grns.connect(database_url=shared.url, nats_url="nats://127.0.0.1:1") as client:
        pass
    for work in (
        client.submit("noop", pool="worker"),
        client.get("gr-0"),
        client.wait("gr-0", timeout=5),
    ):
        with pytest.raises(UnavailableError):
            await work
