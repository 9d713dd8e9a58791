"""Operations between two of their statements: whatever comes, no task is moved twice or left out unseen."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from grns.errors import ConflictError, InvalidInputError
from grns.maintenance.scheduler import promote
from grns.operations import batches as batches
from grns.operations.batches import OperationBatch
from grns.operations.model import State
from grns.operations.service import cancel_operation, pause_operation, resume_operation
from grns.postgres.database import Database
from grns.tasks.edit import discard_tasks
from tests.support.harness import eventually, submit, submit_many
from tests.support.operations import (
    LIMITS,
    asked,
    dead_tasks,
    lapse_of,
    payload_of,
    redrives,
    said,
    seen,
    statuses,
    step,
    taken,
)
from tests.support.store import (
    ACTOR,
    claim,
    fall_due,
    fetch,
    is_waiting_for_lock,
    locked,
    redrive,
    row_of,
    stranger,
)

# ---------------------------------------------------------------- between its statements


async def test_whoever_was_overtaken_moves_nothing(shared: Database) -> None:
    """Frozen with a batch in hand, and woken when somebody else has moved it."""
    ids = await dead_tasks(shared, 3)
    made = await asked(shared)
    frozen = await taken(shared, "one")
    in_hand = await batches.next_batch(shared, frozen, 200, LIMITS)
    assert await batches.take(shared, "two", lease_seconds=15.0, pause_seconds=0.0) is None, "its lease holds"
    await lapse_of(shared, made)
    assert await step(shared, owner="two") is not None
    assert await batches.move(shared, frozen, in_hand) is None
    assert await batches.judge_canary(shared, frozen, pause_seconds=1.0) is None
    assert await redrives(shared) == dict.fromkeys(ids, 1)
    assert (await seen(shared, made)).moved == 3


async def test_two_who_move_one_batch_at_once_move_it_once(shared: Database) -> None:
    """One that took over while the other's statement was on its way: the row of the operation decides."""
    ids = await dead_tasks(shared, 20)
    made = await asked(shared)
    slow = await taken(shared, "one")
    in_hand = await batches.next_batch(shared, slow, 200, LIMITS)
    async with stranger(shared) as connection:
        await connection.execute("select from grns.operations for update")
        late = asyncio.create_task(batches.move(shared, slow, in_hand))
        await eventually(lambda: is_waiting_for_lock(shared))
        await connection.execute("update grns.operations set epoch = epoch + 1")
        await connection.execute("commit")
        assert await late is None
    assert not await redrives(shared)
    await lapse_of(shared, made)
    moved = await step(shared, owner="two")
    assert (moved and moved.tasks) == 20
    assert await redrives(shared) == dict.fromkeys(ids, 1)


async def test_an_abort_that_meets_a_batch_comes_before_it_or_after(shared: Database) -> None:
    ids = await dead_tasks(shared, 5)
    made = await asked(shared)
    found = await taken(shared)
    in_hand = await batches.next_batch(shared, found, 200, LIMITS)
    async with stranger(shared) as connection:
        await connection.execute("select from grns.operations for update")
        moving = asyncio.create_task(batches.move(shared, found, in_hand))
        ending = asyncio.create_task(cancel_operation(shared, made.id, workspace="default", actor=ACTOR))
        await eventually(lambda: is_waiting_for_lock(shared))
        await connection.execute("rollback")
        _, conflict = await asyncio.gather(moving, ending, return_exceptions=True)
    done = await seen(shared, made)
    if isinstance(conflict, ConflictError):
        assert (done.state, done.moved) == (State.DONE, 5)
    else:
        assert (done.state, done.moved) == (State.CANCELLED, 0)
    assert await redrives(shared) == (dict.fromkeys(ids, 1) if done.moved else {})
    assert await batches.take(shared, "two", lease_seconds=15.0, pause_seconds=0.0) is None


@pytest.mark.parametrize("change", ["redriven", "edited", "deleted", "discarded"])
async def test_what_was_touched_since_it_was_read_is_left_out(shared: Database, change: str) -> None:
    ids = await dead_tasks(shared, 3)
    made = await asked(shared)
    found = await taken(shared)
    in_hand = await batches.next_batch(shared, found, 200, LIMITS)
    sql = {
        "edited": "update grns.tasks set payload = '{\"a\": 1}', updated_at = now() where id = $1",
        "deleted": "delete from grns.tasks where id = $1",
    }
    if change == "redriven":
        await redrive(shared, ids[0])
    elif change == "discarded":
        await discard_tasks(shared, [ids[0]], workspace="default", actor=ACTOR)
    else:
        await fetch(shared, sql[change], ids[0])
    moved = await batches.move(shared, found, in_hand)
    assert (moved and moved.tasks) == 2
    assert await redrives(shared) == dict.fromkeys(ids if change == "redriven" else ids[1:], 1)
    done = await seen(shared, made)
    assert (done.moved, done.skipped_by) == (2, {"moved_meanwhile": 1})


async def test_nobody_waits_for_a_task_that_a_stranger_holds(shared: Database) -> None:
    ids = await dead_tasks(shared, 3)
    made = await asked(shared)
    async with locked(shared, ids[1]):
        moved = await step(shared)
        assert (moved and moved.tasks) == 2
    done = await seen(shared, made)
    assert (done.state, done.skipped_by) == (State.DONE, {"locked": 1})
    assert (await row_of(shared, ids[1]))["status"] == "dead"


async def test_a_batch_that_the_database_refuses_leaves_nothing(shared: Database) -> None:
    ids = await dead_tasks(shared, 3)
    made = await asked(shared)
    await fetch(shared, _REFUSING.format(ids[1]))
    try:
        found = await taken(shared)
        in_hand = await batches.next_batch(shared, found, 200, LIMITS)
        with pytest.raises(InvalidInputError, match="not this one"):
            await batches.move(shared, found, in_hand)
        assert not await redrives(shared)
        assert (await seen(shared, made)).state is State.PENDING
        moved = await batches.move(shared, found, in_hand.refused("refused_by_database"))
        assert (moved and moved.tasks) == 0
        assert (await seen(shared, made)).skipped_by == {"refused_by_database": 3}
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


@pytest.mark.parametrize("change", ["promoted", "claimed"])
async def test_a_task_that_goes_where_a_cancel_has_been_is_cancelled_too(
    shared: Database, change: str
) -> None:
    """It walks from state to state, slowly where it has a rate; tasks do so, too."""
    first = (await submit(shared, priority=3 if change == "promoted" else 0)).id
    other = (await submit(shared, delay_seconds=100.0 if change == "promoted" else 0)).id
    made = await asked(shared, "cancel")
    await step(shared, limit=1)
    assert await statuses(shared, [first]) == {"cancelled": 1}
    if change == "promoted":
        await fall_due(shared, other)
        await promote(shared, 10, None)
    else:
        await claim(shared, other)
    for _ in range(10):
        if (await seen(shared, made)).state is State.DONE:
            break
        await step(shared, limit=1)
    done = await seen(shared, made)
    assert (done.state, done.moved, done.skipped) == (State.DONE, 2, 0)
    row = await row_of(shared, other)
    assert (row["status"] == "cancelled") is (change == "promoted")
    assert row["cancel_requested_at"] is not None


async def test_a_cancel_comes_to_its_end_while_what_it_has_asked_runs_on(shared: Database) -> None:
    ids = await submit_many(shared, 5)
    for task_id in ids[:3]:
        await claim(shared, task_id)
    made = await asked(shared, "cancel")
    for _ in range(20):
        if (await seen(shared, made)).state is State.DONE:
            break
        await step(shared, limit=2)
    done = await seen(shared, made)
    assert (done.state, done.moved, done.skipped) == (State.DONE, 5, 0)
    assert await statuses(shared, ids) == {"running": 3, "cancelled": 2}


# ---------------------------------------------------------------- paused, resumed, cancelled


async def test_a_paused_one_moves_nothing_until_it_is_resumed(shared: Database) -> None:
    await dead_tasks(shared, 4)
    made = await asked(shared)
    await step(shared, limit=1)
    found = await taken(shared)
    in_hand = await batches.next_batch(shared, found, 200, LIMITS)
    paused = await pause_operation(shared, made.id, workspace="default", actor=ACTOR, reason="lunch")
    assert (paused.state, paused.state_reason) == (State.PAUSED, "lunch")
    assert await batches.move(shared, found, in_hand) is None
    assert await batches.take(shared, "one", lease_seconds=15.0, pause_seconds=0.0) is None
    with pytest.raises(ConflictError, match="is paused: it cannot pause"):
        await pause_operation(shared, made.id, workspace="default", actor=ACTOR)
    resumed = await resume_operation(shared, made.id, workspace="default", actor=ACTOR)
    assert (resumed.state, resumed.state_reason) == (State.RUNNING, None)
    with pytest.raises(ConflictError, match="is running: it cannot resume"):
        await resume_operation(shared, made.id, workspace="default", actor=ACTOR)
    moved = await step(shared)
    assert (moved and moved.tasks) == 3
    changes = [payload_of(event) for event in await said(shared, "evt.operation.changed")]
    assert [(one["was"], one["state"], one["reason"], one["actor"]) for one in changes] == [
        ("running", "paused", "lunch", ACTOR), ("paused", "running", None, ACTOR),
    ]  # fmt: skip


@pytest.mark.parametrize("is_paused", [False, True])
async def test_an_aborted_one_is_over(shared: Database, is_paused: bool) -> None:
    ids = await dead_tasks(shared, 4)
    made = await asked(shared)
    await step(shared, limit=1)
    if is_paused:
        await pause_operation(shared, made.id, workspace="default", actor=ACTOR)
    ended = await cancel_operation(shared, made.id, workspace="default", actor=ACTOR, reason="wrong ones")
    assert (ended.state, ended.state_reason, ended.moved) == (State.CANCELLED, "wrong ones", 1)
    for change in (pause_operation, resume_operation, cancel_operation):
        with pytest.raises(ConflictError, match="is cancelled"):
            await change(shared, made.id, workspace="default", actor=ACTOR)
    assert await batches.take(shared, "one", lease_seconds=15.0, pause_seconds=0.0) is None
    assert await statuses(shared, ids) == {"queued": 1, "dead": 3}
    told = payload_of((await said(shared, "evt.operation.ended"))[0])
    assert (told["state"], told["actor"], told["moved"]) == ("cancelled", ACTOR, 1)


async def test_one_that_cannot_be_done_fails_under_its_epoch_only(shared: Database) -> None:
    made = await asked(shared)
    overtaken = await taken(shared)
    found = await taken(shared)
    await batches.fail(shared, overtaken, "an old view of it")
    assert (await seen(shared, made)).state is State.PENDING
    await batches.fail(shared, found, "no such term")
    failed = await seen(shared, made)
    assert (failed.state, failed.state_reason) == (State.FAILED, "no such term")


def test_a_batch_can_be_refused_whole() -> None:
    candidate = batches.Candidate("gr-0", 1, datetime(2026, 1, 1, tzinfo=UTC))
    batch = OperationBatch([candidate], "cursor", is_end=False)
    assert batch.refused("why") == replace(batch, candidates=[replace(candidate, refusal="why")])
