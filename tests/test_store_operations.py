"""Operations in the store: whatever comes between two of its statements, no task is moved twice or unseen."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from grns.errors import BadInput, Conflict, NotFound
from grns.operation import Action, State, request
from grns.outcome import Verb
from grns.payloads import PAYLOADS
from grns.store import operation_batch as batches
from grns.store import upkeep
from grns.store.database import Database
from grns.store.edit import discard_tasks
from grns.store.operation import (
    abort_operation,
    list_operations,
    pause_operation,
    preview,
    read_operation,
    resume_operation,
)
from grns.store.operation_batch import Batch
from grns.strict_json import loads_stored
from tests.harness import eventually, rows_of, submit
from tests.operations import (
    LIMITS,
    asked,
    dead_tasks,
    lapse_of,
    redrives,
    run_queued,
    said,
    seen,
    taken,
)
from tests.test_store_kit import (
    ACTOR,
    fetch,
    finish,
    is_waiting_for_lock,
    locked,
    place,
    redrive,
    row_of,
    stranger,
)

pytest_plugins = ["tests.test_store_kit"]


async def step(database: Database, limit: int = 200, owner: str = "one") -> batches.Moved | None:
    """Move one batch, as a runner does."""
    found = await taken(database, owner)
    return await batches.move(database, found, await batches.next_batch(database, found, limit, LIMITS))


async def statuses(database: Database, ids: list[str]) -> dict[str, int]:
    """Return how many of some tasks there are in each status."""
    found: dict[str, int] = {}
    for row in (await rows_of(database, ids)).values():
        found[row["status"]] = found.get(row["status"], 0) + 1
    return found


# ---------------------------------------------------------------- asked for


async def test_what_it_would_find_is_told_before_it_is_asked_for(shared: Database) -> None:
    ids = await dead_tasks(shared, 3)
    others = await dead_tasks(shared, 2, task_type="noop", agent_type="worker", priority=0)
    found = await preview(shared, request(action="redrive", filter="type:noop"), workspace="default")
    assert (found.count, found.is_exact) == (5, True)
    assert [(one.task_type, one.tasks) for one in found.by_type] == [("noop", 5)]
    assert found.by_type[0].sample_task_id in [*ids, *others]
    assert (
        await preview(shared, request(action="redrive", filter="type:none"), workspace="default")
    ).by_type == []
    assert not await said(shared, "evt.operation.created")


async def test_it_is_kept_as_it_was_asked_for(shared: Database) -> None:
    await dead_tasks(shared, 2)
    made = await asked(
        shared, filter="type:noop", canary=True, rate_per_minute=30.0, patch={"a": {"b": None}},
        agent_type="writer", reason="mended",
    )  # fmt: skip
    assert made == await read_operation(shared, made.id, workspace="default")
    assert (made.action, made.filter, made.state) == (
        Action.REDRIVE,
        "state:dead,failed type:noop",
        State.PENDING,
    )
    assert (made.canary, made.rate_per_minute, made.patch) == (True, 30.0, {"a": {"b": None}})
    assert (made.agent_type, made.reason, made.created_by) == ("writer", "mended", ACTOR)
    assert (made.matched, made.is_exact, made.moved, made.outstanding) == (2, True, 0, 0)
    (event,) = await said(shared, "evt.operation.created")
    assert (event["actor"], event["workspace"], event["task_id"]) == (ACTOR, "default", None)
    told = _payload(event)
    assert (told["operation_id"], told["matched"], told["reason"]) == (str(made.id), 2, "mended")


async def test_another_workspace_has_another_ones_operations(shared: Database) -> None:
    made = await asked(shared)
    for look in (
        read_operation(shared, made.id, workspace="other"),
        pause_operation(shared, made.id, workspace="other", actor=ACTOR),
        abort_operation(shared, made.id + 1, workspace="default", actor=ACTOR),
    ):
        with pytest.raises(NotFound):
            await look
    assert (await list_operations(shared, workspace="other", limit=10)).operations == []
    assert (await seen(shared, made)).state is State.PENDING


async def test_they_are_listed_page_by_page_the_latest_first(shared: Database) -> None:
    made = [(await asked(shared)).id for _ in range(5)]
    await abort_operation(shared, made[2], workspace="default", actor=ACTOR)
    listed: list[int] = []
    after: int | None = None
    while True:
        page = await list_operations(shared, workspace="default", limit=2, after=after)
        listed += [one.id for one in page.operations]
        if (after := page.next_cursor) is None:
            break
    assert listed == made[::-1]
    ended = await list_operations(shared, workspace="default", states=[State.ABORTED], limit=2)
    assert [one.id for one in ended.operations] == [made[2]]


# ---------------------------------------------------------------- redriven


async def test_a_batch_is_redriven_as_one_task_would_be(shared: Database) -> None:
    """With who asked and why in each event, and the fingerprint of the issue that has one task less."""
    (task_id,) = await dead_tasks(shared, 1, payload={"n": 1}, priority=1)
    before = await row_of(shared, task_id)
    made = await asked(shared, reason="mended")
    moved = await step(shared)
    assert (moved and moved.tasks, moved and moved.state) == (1, State.DONE)
    after = await row_of(shared, task_id)
    assert (after["status"], after["queued_reason"], after["version"]) == (
        "queued",
        "redriven",
        before["version"] + 1,
    )
    assert (after["forgiven"], after["released"], after["operation_id"]) == (after["attempt"], 0, made.id)
    assert json.loads(after["payload"]) == {"n": 1}
    event = (await said(shared, "evt.task.queued"))[-1]
    assert event["message_id"] == after["last_message_id"]
    assert (event["version"], event["was"], event["actor"]) == (after["version"], b"d", ACTOR)
    assert event["causation_id"] == before["last_message_id"]
    told = PAYLOADS["evt.task.queued"].model_validate_json(event["payload"]).model_dump()
    assert (told["reason"], told["actor"], told["fingerprint"]) == ("redriven", ACTOR, before["fingerprint"])
    assert (json.loads(event["payload"])["operation_id"], json.loads(event["payload"])["why"]) == (
        str(made.id), "mended",
    )  # fmt: skip
    command = (await said(shared, "cmd.task.execute"))[-1]
    assert (command["route"], command["causation_id"]) == ("worker.p1", event["message_id"])
    done = await seen(shared, made)
    assert (done.moved, done.skipped, done.skipped_by, done.outstanding) == (1, 0, {}, 1)
    ended = _payload((await said(shared, "evt.operation.ended"))[0])
    assert (ended["state"], ended["moved"], ended["skipped"]) == ("done", 1, 0)


async def test_it_goes_on_behind_its_last_batch(shared: Database) -> None:
    ids = await dead_tasks(shared, 7)
    made = await asked(shared)
    counts = []
    while (await seen(shared, made)).state in (State.PENDING, State.RUNNING):
        moved = await step(shared, limit=3)
        counts.append(moved and moved.tasks)
    assert counts == [3, 3, 1]
    assert await redrives(shared) == dict.fromkeys(ids, 1)
    done = await seen(shared, made)
    assert (done.state, done.moved, done.skipped) == (State.DONE, 7, 0)
    assert done.ended_at is not None


async def test_what_ends_after_it_was_asked_for_is_none_of_it(shared: Database) -> None:
    early = await dead_tasks(shared, 2)
    made = await asked(shared)
    late = await dead_tasks(shared, 3)
    await step(shared)
    assert await statuses(shared, early) == {"queued": 2}
    assert await statuses(shared, late) == {"dead": 3}
    done = await seen(shared, made)
    assert (done.moved, done.skipped) == (2, 0)


async def test_what_fails_again_meanwhile_is_not_redriven_again(shared: Database) -> None:
    ids = await dead_tasks(shared, 4)
    made = await asked(shared)
    await step(shared, limit=2)
    await run_queued(shared, Verb.FAIL)
    await step(shared, limit=2)
    assert await redrives(shared) == dict.fromkeys(ids, 1)
    assert (await seen(shared, made)).moved == 4


async def test_the_same_operation_moves_no_task_twice_whatever_the_clock_says(shared: Database) -> None:
    """A failover to a server whose clock is behind lets what has failed again look like an old failure."""
    (task_id,) = await dead_tasks(shared, 1)
    made = await asked(shared)
    await step(shared)
    await run_queued(shared, Verb.FAIL)
    await fetch(shared, "update grns.tasks set finished_at = $1", made.created_at - timedelta(hours=1))
    await fetch(
        shared,
        "update grns.operations set state = 'running', due_at = now(), ended_at = null, is_exhausted = false,"
        " page_cursor = null",
    )
    moved = await step(shared)
    assert moved is not None
    assert moved.tasks == 0
    assert (await row_of(shared, task_id))["status"] == "failed"


async def test_payloads_are_patched_one_by_one(shared: Database) -> None:
    """One whose payload could not be kept is left out, and it is said why."""
    long = "x" * (LIMITS.document_bytes - 20)
    (small,), (large,) = await dead_tasks(shared, 1, payload={"n": 1, "gone": 2}), await dead_tasks(
        shared, 1, payload={"long": long}
    )  # fmt: skip
    made = await asked(shared, patch={"gone": None, "new": {"deep": [2**53 + 1, 1e300]}}, agent_type="writer")
    await step(shared)
    rows = await rows_of(shared, [small, large])
    assert loads_stored(rows[small]["payload"]) == {"n": 1, "new": {"deep": [2**53 + 1, 1e300]}}
    assert (rows[small]["agent_type"], rows[small]["status"]) == ("writer", "queued")
    assert (rows[large]["agent_type"], rows[large]["status"]) == ("worker", "dead")
    done = await seen(shared, made)
    assert (done.moved, done.skipped, done.skipped_by) == (1, 1, {"too_large": 1})
    command = (await said(shared, "cmd.task.execute"))[-1]
    assert (command["task_id"], command["route"]) == (small, "writer.p2")


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
        ending = asyncio.create_task(abort_operation(shared, made.id, workspace="default", actor=ACTOR))
        await eventually(lambda: is_waiting_for_lock(shared))
        await connection.execute("rollback")
        _, conflict = await asyncio.gather(moving, ending, return_exceptions=True)
    done = await seen(shared, made)
    if isinstance(conflict, Conflict):
        assert (done.state, done.moved) == (State.DONE, 5)
    else:
        assert (done.state, done.moved) == (State.ABORTED, 0)
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
        with pytest.raises(BadInput, match="not this one"):
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


# ---------------------------------------------------------------- paused, resumed, aborted


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
    with pytest.raises(Conflict, match="is paused: it cannot pause"):
        await pause_operation(shared, made.id, workspace="default", actor=ACTOR)
    resumed = await resume_operation(shared, made.id, workspace="default", actor=ACTOR)
    assert (resumed.state, resumed.state_reason) == (State.RUNNING, None)
    with pytest.raises(Conflict, match="is running: it cannot resume"):
        await resume_operation(shared, made.id, workspace="default", actor=ACTOR)
    moved = await step(shared)
    assert (moved and moved.tasks) == 3
    changes = [_payload(event) for event in await said(shared, "evt.operation.changed")]
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
    ended = await abort_operation(shared, made.id, workspace="default", actor=ACTOR, reason="wrong ones")
    assert (ended.state, ended.state_reason, ended.moved) == (State.ABORTED, "wrong ones", 1)
    for change in (pause_operation, resume_operation, abort_operation):
        with pytest.raises(Conflict, match="is aborted"):
            await change(shared, made.id, workspace="default", actor=ACTOR)
    assert await batches.take(shared, "one", lease_seconds=15.0, pause_seconds=0.0) is None
    assert await statuses(shared, ids) == {"queued": 1, "dead": 3}
    told = _payload((await said(shared, "evt.operation.ended"))[0])
    assert (told["state"], told["actor"], told["moved"]) == ("aborted", ACTOR, 1)


async def test_one_that_cannot_be_done_fails_under_its_epoch_only(shared: Database) -> None:
    made = await asked(shared)
    overtaken = await taken(shared)
    found = await taken(shared)
    await batches.fail(shared, overtaken, "an old view of it")
    assert (await seen(shared, made)).state is State.PENDING
    await batches.fail(shared, found, "no such term")
    failed = await seen(shared, made)
    assert (failed.state, failed.state_reason) == (State.FAILED, "no such term")


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
    assert (_payload(event)["state"], event["actor"]) == ("paused", None)
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
    assert (await seen(shared, made)).moved == 1


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


async def test_what_a_runner_gives_up_another_one_takes_at_once(shared: Database) -> None:
    made = await asked(shared)
    assert await batches.take(shared, "one", lease_seconds=15.0, pause_seconds=60.0) is not None
    assert await batches.take(shared, "two", lease_seconds=15.0, pause_seconds=60.0) is None
    await batches.drop(shared, "one")
    found = await batches.take(shared, "two", lease_seconds=15.0, pause_seconds=60.0)
    assert found is not None
    assert (found.id, found.epoch) == (made.id, 2)


# ---------------------------------------------------------------- discarded, cancelled


async def test_a_batch_is_discarded(shared: Database) -> None:
    """It is no transition; what was discarded before is left out of what a filter finds."""
    ids = await dead_tasks(shared, 3)
    cancelled = (await place(shared, "cancelled")).id
    await discard_tasks(shared, [ids[0]], workspace="default", actor=ACTOR)
    before = await rows_of(shared, [*ids, cancelled])
    made = await asked(shared, "discard", filter="state:dead,cancelled", reason="hopeless")
    moved = await step(shared)
    assert (moved and moved.tasks, moved and moved.state) == (3, State.DONE)
    after = await rows_of(shared, [*ids, cancelled])
    for task_id, row in after.items():
        changed = {name for name in dict(row) if row[name] != before[task_id][name]}
        expected = (
            set() if task_id == ids[0] else {"discarded_at", "discarded_by", "operation_id", "updated_at"}
        )
        assert changed == expected
    events = [event for event in await said(shared, "evt.task.discarded") if event["task_id"] != ids[0]]
    assert {event["task_id"] for event in events} == {*ids[1:], cancelled}
    for event in events:
        row, told = after[event["task_id"]], _payload(event)
        assert (event["version"], event["was"], event["actor"]) == (row["version"], None, ACTOR)
        assert (told["status"], told["reason"]) == (row["status"], "hopeless")
        assert told["fingerprint"] == (None if row["status"] == "cancelled" else row["fingerprint"])
    assert (await seen(shared, made)).outstanding == 0


async def test_a_redrive_takes_the_mark_off(shared: Database) -> None:
    """And says no fingerprint: the issue had lost that task when it was discarded."""
    one, another = await dead_tasks(shared, 2)
    await discard_tasks(shared, [one, another], workspace="default", actor=ACTOR)
    await asked(shared, filter=f"discarded:yes id:{one}")
    await step(shared)
    assert await redrive(shared, another) == {another: "redriven"}
    for row in (await rows_of(shared, [one, another])).values():
        assert (row["status"], row["discarded_at"], row["discarded_by"]) == ("queued", None, None)
    redriven = [event for event in await said(shared, "evt.task.queued") if event["was"] is not None]
    assert [_payload(event)["fingerprint"] for event in redriven] == [None, None]


async def test_a_batch_is_cancelled(shared: Database) -> None:
    """At once where it does not run, else by a request; what came later is none of it."""
    roads = ("waiting", "queued", "retry_wait", "running")
    tasks = {road: await place(shared, road) for road in roads}
    ended = (await place(shared, "succeeded")).id
    made = await asked(shared, "cancel", reason="no more")
    late = (await submit(shared)).id
    agents: list[str] = []
    while (await seen(shared, made)).state in (State.PENDING, State.RUNNING):
        moved = await step(shared)
        assert moved is not None
        agents += moved.agent_ids
    assert agents == ["worker-one"]
    rows = await rows_of(shared, [*(claim.id for claim in tasks.values()), ended, late])
    found = {road: rows[claim.id]["status"] for road, claim in tasks.items()}
    assert found == dict.fromkeys(roads[:3], "cancelled") | {"running": "running"}
    assert (rows[ended]["status"], rows[late]["status"]) == ("succeeded", "queued")
    asked_to_end = rows[tasks["running"].id]
    assert asked_to_end["cancel_requested_at"] is not None
    assert (asked_to_end["cancel_reason"], asked_to_end["cancel_actor"]) == ("no more", ACTOR)
    events = {event["task_id"]: event for event in await said(shared, "evt.task.cancelled")}
    assert {road: events[tasks[road].id]["was"] for road in roads[:3]} == {
        "waiting": b"w", "queued": b"q", "retry_wait": b"t",
    }  # fmt: skip
    for event in events.values():
        assert (event["actor"], _payload(event)["reason"]) == (ACTOR, "no more")
    done = await seen(shared, made)
    assert (done.moved, done.outstanding) == (4, 0)
    assert (await finish(shared, tasks["running"], Verb.RETRY)).status == "cancelled"


# ---------------------------------------------------------------- followed, forgotten


async def test_what_became_of_the_redriven_is_counted_once(shared: Database) -> None:
    ids = await dead_tasks(shared, 6)
    made = await asked(shared)
    await step(shared)
    await run_queued(shared, Verb.SUCCEED, 2)
    await run_queued(shared, Verb.FAIL, 1)
    await _follow(shared)
    now = await seen(shared, made)
    assert (now.succeeded, now.failed_again, now.ended_otherwise, now.outstanding) == (2, 1, 0, 3)
    left = [task_id for task_id, row in (await rows_of(shared, ids)).items() if row["status"] == "queued"]
    await fetch(shared, "delete from grns.tasks where id = $1", left[0])
    await run_queued(shared, Verb.SUCCEED, 1)
    await _follow(shared)
    assert (await seen(shared, made)).ended_otherwise == 1
    await run_queued(shared, Verb.SUCCEED)
    await _follow(shared)
    done = await seen(shared, made)
    assert (done.succeeded, done.failed_again, done.ended_otherwise, done.outstanding) == (4, 1, 1, 0)
    rows = await fetch(shared, "select follow_at from grns.operations")
    assert rows[0]["follow_at"] is None, "nobody looks any more"
    assert not await fetch(shared, "select from grns.operation_tasks")


async def test_a_task_that_was_dead_before_has_not_failed_again(shared: Database) -> None:
    await dead_tasks(shared, 1)
    made = await asked(shared)
    await step(shared)
    followed = await _follow(shared)
    assert (followed.seen, followed.ended) == (1, 0)
    assert (await seen(shared, made)).failed_again == 0


async def test_many_are_followed_page_by_page(shared: Database) -> None:
    await dead_tasks(shared, 5)
    made = await asked(shared)
    await step(shared)
    first = [(await _follow(shared, 2)).seen for _ in range(3)]
    assert first == [2, 2, 1]
    await run_queued(shared, Verb.SUCCEED)
    second = [(await _follow(shared, 2)).ended for _ in range(3)]
    assert second == [2, 2, 1]
    assert (await seen(shared, made)).succeeded == 5


async def test_two_who_follow_at_once_count_nothing_twice(shared: Database) -> None:
    await dead_tasks(shared, 50)
    made = await asked(shared)
    await step(shared)
    await run_queued(shared, Verb.SUCCEED)
    await asyncio.gather(*(batches.follow(shared, 50, pause_seconds=0.0) for _ in range(8)))
    assert (await seen(shared, made)).succeeded == 50


async def _follow(database: Database, limit: int = 100) -> batches.Followed:
    """Look once what became of redriven tasks, as if it were time to."""
    await fetch(database, "update grns.operations set follow_at = now() where follow_at is not null")
    followed = await batches.follow(database, limit, pause_seconds=60.0)
    assert followed is not None
    return followed


async def test_what_ended_long_ago_is_forgotten(shared: Database) -> None:
    await dead_tasks(shared, 2)
    old, fresh = await asked(shared), await asked(shared)
    await step(shared)
    await abort_operation(shared, fresh.id, workspace="default", actor=ACTOR)
    await fetch(
        shared, "update grns.operations set ended_at = ended_at - interval '2 d' where id = $1", old.id
    )
    assert await upkeep.delete_operations(shared, 10, 86_400.0) == 1
    assert (await seen(shared, fresh)).state is State.ABORTED
    with pytest.raises(NotFound):
        await seen(shared, old)
    assert not await fetch(shared, "select from grns.operation_tasks")


# ---------------------------------------------------------------- what this file needs


def _payload(event: dict[str, Any]) -> dict[str, Any]:
    """Return what an event says, if it fits its model."""
    PAYLOADS[event["kind"]].model_validate_json(event["payload"])
    told: dict[str, Any] = json.loads(event["payload"])
    return told


def test_a_batch_can_be_refused_whole() -> None:
    candidate = batches.Candidate("gr-0", 1, datetime(2026, 1, 1, tzinfo=UTC))
    batch = Batch([candidate], "cursor", is_end=False)
    assert batch.refused("why") == replace(batch, candidates=[replace(candidate, refusal="why")])
