"""The runner: operations go on by themselves, batch by batch, whoever else runs."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from grns.model.outcome import Verb
from grns.operations.model import State
from grns.operations.service import resume_operation
from grns.postgres.database import Database
from grns.telemetry.service_signals import TickFailed
from grns.telemetry.task_signals import BatchMoved, OperationResumed, OperationStopped
from tests.support.harness import eventually, rows_of
from tests.support.operations import asked, dead_tasks, in_state, redrives, run_queued, running, seen
from tests.support.store import ACTOR, fetch, stranger


async def test_operations_are_done_one_beside_the_other(shared: Database) -> None:
    """None waits for another one's end, and none takes what is another one's."""
    first = await dead_tasks(shared, 450, payload={"n": 1})
    second = await dead_tasks(shared, 30, payload={"n": 2})
    slow = await asked(shared, filter="payload.n:1", rate_per_minute=600.0)
    quick = await asked(shared, filter="payload.n:2")
    async with running(shared) as emitted:
        await in_state(shared, quick, State.DONE)
        assert (await seen(shared, slow)).moved < 450
        await fetch(shared, "update grns.operations set rate_per_minute = null where ended_at is null")
        done = await in_state(shared, slow, State.DONE)
    assert (done.moved, done.skipped) == (450, 0)
    assert await redrives(shared) == dict.fromkeys([*first, *second], 1)
    assert {signal.operation for signal in emitted.of(OperationResumed)} == {slow.id, quick.id}
    assert sum(signal.tasks for signal in emitted.of(BatchMoved)) == 480


async def test_two_runners_move_no_task_twice(shared: Database) -> None:
    ids = await dead_tasks(shared, 500)
    made = await asked(shared)
    async with AsyncExitStack() as runners:
        for _ in range(3):
            await runners.enter_async_context(running(shared))
        for _ in range(20):  # each may be overtaken at any moment
            await fetch(shared, "update grns.operations set lease_until = '-infinity'")
            await asyncio.sleep(0)
        done = await in_state(shared, made, State.DONE)
    assert (done.moved, done.skipped) == (500, 0)
    assert await redrives(shared) == dict.fromkeys(ids, 1)


async def test_the_canary_is_waited_for(shared: Database) -> None:
    ids = await dead_tasks(shared, 5)
    made = await asked(shared, canary=True)
    async with running(shared) as emitted:
        await in_state(shared, made, State.CANARY)
        assert len(await redrives(shared)) == 1
        assert len(await run_queued(shared, Verb.SUCCEED)) == 1
        done = await in_state(shared, made, State.DONE)
        assert (done.moved, done.skipped) == (5, 0)
        assert await redrives(shared) == dict.fromkeys(ids, 1)
        await run_queued(shared, Verb.SUCCEED)

        async def are_counted() -> bool:
            return (await seen(shared, made)).succeeded == 5

        await eventually(are_counted)
    assert [signal.state for signal in emitted.of(OperationResumed)] == ["running", "done"]


async def test_a_canary_that_fails_is_told(shared: Database) -> None:
    await dead_tasks(shared, 3)
    made = await asked(shared, canary=True)
    async with running(shared) as emitted:
        await in_state(shared, made, State.CANARY)
        await run_queued(shared, Verb.FAIL)
        paused = await in_state(shared, made, State.PAUSED)
        assert len(await redrives(shared)) == 1
        await resume_operation(shared, made.id, workspace="default", actor=ACTOR)
        await in_state(shared, made, State.DONE)
    assert [(signal.state, signal.reason) for signal in emitted.of(OperationStopped)] == [
        ("paused", paused.state_reason)
    ]


async def test_a_task_that_the_database_refuses_is_left_out_and_no_other(shared: Database) -> None:
    """Somebody's trigger on our table, say."""
    ids = await dead_tasks(shared, 60)
    await fetch(shared, _REFUSING.format(ids[17]))
    try:
        made = await asked(shared)
        async with running(shared) as emitted:
            done = await in_state(shared, made, State.DONE)
        assert (done.moved, done.skipped_by) == (59, {"refused_by_database": 1})
        assert await redrives(shared) == dict.fromkeys([*ids[:17], *ids[18:]], 1)
        assert not emitted.of(TickFailed)
    finally:
        await fetch(shared, "drop function grns.refuse_one cascade")


_REFUSING = """
    do $do$ begin
        create function grns.refuse_one() returns trigger language plpgsql as $$
        begin
            if new.id = '{}' then raise exception 'not this one'; end if;
            return new;
        end $$;
        create trigger refuse_one before update on grns.tasks for each row execute function grns.refuse_one();
    end $do$
"""


async def test_one_that_cannot_be_done_ends_and_holds_nobody_up(shared: Database) -> None:
    """A filter that an older version has kept, say."""
    (task_id,) = await dead_tasks(shared, 1)
    bad, good = await asked(shared), await asked(shared, filter="type:noop")
    await fetch(shared, "update grns.operations set filter = 'colour:red' where id = $1", bad.id)
    async with running(shared) as emitted:
        await in_state(shared, good, State.DONE)
        failed = await in_state(shared, bad, State.FAILED)
    assert failed.state_reason is not None
    assert "colour" in failed.state_reason
    assert [signal.operation for signal in emitted.of(OperationStopped)] == [bad.id]
    assert (await rows_of(shared, [task_id]))[task_id]["status"] == "queued"


async def test_one_that_a_stranger_holds_is_done_when_it_is_free(shared: Database) -> None:
    """The others do not wait for it."""
    ids = await dead_tasks(shared, 4)
    held, free = (
        await asked(shared, filter=f"id:{ids[0]},{ids[1]}"),
        await asked(shared, filter=f"id:{ids[2]},{ids[3]}"),
    )
    async with stranger(shared) as connection:
        await connection.execute("select from grns.operations where id = $1 for update", held.id)
        async with running(shared):
            await in_state(shared, free, State.DONE)
            await connection.execute("rollback")
            await in_state(shared, held, State.DONE)
    assert await redrives(shared) == dict.fromkeys(ids, 1)


async def test_who_stops_leaves_nothing_taken(shared: Database) -> None:
    await dead_tasks(shared, 20)
    made = await asked(shared, rate_per_minute=60.0)
    async with running(shared):

        async def has_begun() -> bool:
            return (await seen(shared, made)).moved > 0

        await eventually(has_begun)
    rows = await fetch(shared, "select owner, lease_until < now() as is_free from grns.operations")
    assert [(row["owner"], row["is_free"]) for row in rows] == [(None, True)]
