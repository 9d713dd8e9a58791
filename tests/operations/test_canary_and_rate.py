"""Operations that are careful: a canary first, no faster than their rate, and each in its turn."""

from __future__ import annotations

from datetime import timedelta

import pytest

from grns.model.outcome import Verb
from grns.operations import batches as batches
from grns.operations.model import State
from grns.operations.service import pause_operation, resume_operation
from grns.postgres.database import Database
from tests.support.operations import (
    LIMITS,
    asked,
    dead_tasks,
    payload_of,
    redrives,
    run_queued,
    said,
    seen,
    step,
    taken,
)
from tests.support.store import (
    ACTOR,
    fetch,
    redrive,
)

# ---------------------------------------------------------------- canary, rate, turns


async def test_the_canary_goes_first_and_the_others_if_it_succeeds(shared: Database) -> None:
    ids = await dead_tasks(shared, 3)
    made = await asked(shared, canary=True)
    found = await taken(shared)
    assert found.needs_canary
    moved = await batches.move(shared, found, await batches.next_batch(shared, found, 1, LIMITS))
    assert (moved and moved.state, moved and moved.tasks) == (State.CANARY, 1)
    canary = (await seen(shared, made)).canary_task_id
    assert canary in ids
    judged = await batches.judge_canary(shared, await taken(shared), pause_seconds=0.0)
    assert judged is not None
    assert judged["state"] == "canary", "it has not ended"
    assert await run_queued(shared, Verb.SUCCEED) == [canary]
    judged = await batches.judge_canary(shared, await taken(shared), pause_seconds=0.0)
    assert judged is not None
    assert judged["state"] == "running"
    moved = await step(shared)
    assert (moved and moved.state, moved and moved.tasks) == (State.DONE, 2)
    assert await redrives(shared) == dict.fromkeys(ids, 1)


@pytest.mark.parametrize("end", ["failed", "cancelled", "gone"])
async def test_where_the_canary_fails_somebody_decides(shared: Database, end: str) -> None:
    ids = await dead_tasks(shared, 3)
    made = await asked(shared, canary=True)
    await step(shared, limit=1)
    canary = (await seen(shared, made)).canary_task_id
    if end == "failed":
        await run_queued(shared, Verb.FAIL)
    else:
        await fetch(shared, _ENDS[end], canary)
    await batches.judge_canary(shared, await taken(shared), pause_seconds=0.0)
    paused = await seen(shared, made)
    because = ": ValueError" if end == "failed" else ""
    assert paused.state is State.PAUSED
    assert paused.state_reason == f"its canary {canary} is {end}{because}"
    assert len(await redrives(shared)) == 1
    (event,) = await said(shared, "evt.operation.changed")
    assert (payload_of(event)["state"], event["actor"]) == ("paused", None)
    await resume_operation(shared, made.id, workspace="default", actor=ACTOR)
    moved = await step(shared)
    assert (moved and moved.tasks) == 2
    assert await redrives(shared) == dict.fromkeys(ids, 1)


_ENDS = {
    "gone": "delete from grns.tasks where id = $1",
    "cancelled": "update grns.tasks set status = 'cancelled', queued_at = null, finished_at = now()"
    " where id = $1",
}


async def test_one_that_waits_for_its_canary_goes_on_waiting_when_it_is_resumed(shared: Database) -> None:
    await dead_tasks(shared, 2)
    made = await asked(shared, canary=True)
    await step(shared, limit=1)
    await pause_operation(shared, made.id, workspace="default", actor=ACTOR)
    assert (await resume_operation(shared, made.id, workspace="default", actor=ACTOR)).state is State.CANARY


async def test_where_the_canary_was_moved_by_somebody_else_the_next_one_is_it(shared: Database) -> None:
    ids = await dead_tasks(shared, 2)
    made = await asked(shared, canary=True)
    found = await taken(shared)
    in_hand = await batches.next_batch(shared, found, 1, LIMITS)
    await redrive(shared, in_hand.candidates[0].id)
    moved = await batches.move(shared, found, in_hand)
    assert (moved and moved.state) is State.PENDING
    await step(shared, limit=1)
    now = await seen(shared, made)
    assert (now.state, now.moved, now.skipped) == (State.CANARY, 1, 1)
    assert now.canary_task_id in ids
    assert now.canary_task_id != in_hand.candidates[0].id


async def test_a_single_task_is_its_own_canary(shared: Database) -> None:
    await dead_tasks(shared, 1)
    made = await asked(shared, canary=True)
    await step(shared, limit=1)
    await run_queued(shared, Verb.SUCCEED)
    await batches.judge_canary(shared, await taken(shared), pause_seconds=0.0)
    moved = await step(shared)
    assert (moved and moved.state, moved and moved.tasks) == (State.DONE, 0)
    ended = await seen(shared, made)
    assert (ended.moved, ended.succeeded, ended.outstanding) == (1, 1, 0), "no look at its tasks was needed"


async def test_a_rate_says_when_the_next_batch_is_due(shared: Database) -> None:
    """Who is late by a second makes up for it; a longer pause gives nobody the right to a burst."""
    await dead_tasks(shared, 9)
    await asked(shared, rate_per_minute=60.0)
    for late_seconds in (0.5, 0.0, 3600.0):
        await fetch(
            shared,
            "update grns.operations set paced_at = now() - $1 * interval '1 s', due_at = now()",
            late_seconds,
        )
        (before,) = await fetch(shared, "select paced_at from grns.operations")
        await step(shared, limit=3)
        (after,) = await fetch(shared, "select paced_at, due_at, moved_at from grns.operations")
        begun_at = max(before["paced_at"], after["moved_at"] - timedelta(seconds=1))
        assert after["paced_at"] == begun_at + timedelta(seconds=3)
        assert after["due_at"] in (after["paced_at"], None), "of the last batch there is none"


async def test_they_take_turns(shared: Database) -> None:
    """One that fails each time is in nobody's way."""
    first, second = await asked(shared), await asked(shared)
    turns = []
    for _ in range(4):
        found = await batches.take(shared, "one", lease_seconds=15.0, pause_seconds=0.0)
        assert found is not None
        turns.append(found.id)
    assert turns == [first.id, second.id] * 2
    assert (await taken(shared)).epoch == 3


async def test_a_runner_knows_when_it_can_take_the_next_one(shared: Database) -> None:
    """One that somebody else has taken: not before that one's lease is over."""
    assert await batches.next_due(shared, "one") is None
    await asked(shared)
    assert await batches.take(shared, "one", lease_seconds=15.0, pause_seconds=3.0) is not None
    assert 0.0 < (await batches.next_due(shared, "one") or 0.0) <= 3.0
    assert 3.0 < (await batches.next_due(shared, "two") or 0.0) <= 15.0


async def test_what_a_runner_gives_up_another_one_takes_at_once(shared: Database) -> None:
    made = await asked(shared)
    assert await batches.take(shared, "one", lease_seconds=15.0, pause_seconds=60.0) is not None
    assert await batches.take(shared, "two", lease_seconds=15.0, pause_seconds=60.0) is None
    await batches.drop(shared, "one")
    found = await batches.take(shared, "two", lease_seconds=15.0, pause_seconds=60.0)
    assert found is not None
    assert (found.id, found.epoch) == (made.id, 2)
