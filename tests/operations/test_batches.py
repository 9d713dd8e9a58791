"""Operations in the store: what they find, what they do to it, and what they tell of that."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta

import pytest

from grns.errors import NotFoundError
from grns.model.events import PAYLOADS
from grns.model.json import loads_stored
from grns.model.outcome import Verb
from grns.operations import batches as batches
from grns.operations.batches import Followed
from grns.operations.model import Action, State, request
from grns.operations.service import (
    cancel_operation,
    list_operations,
    pause_operation,
    preview,
    read_operation,
)
from grns.postgres.database import Database
from grns.tasks.edit import discard_tasks
from tests.support.harness import rows_of, submit
from tests.support.operations import (
    LIMITS,
    asked,
    dead_tasks,
    payload_of,
    redrives,
    run_queued,
    said,
    seen,
    statuses,
    step,
)
from tests.support.store import (
    ACTOR,
    deleted,
    fetch,
    finish,
    place,
    redrive,
    row_of,
)

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
        "status:dead,failed type:noop",
        State.PENDING,
    )
    assert (made.canary, made.rate_per_minute, made.patch) == (True, 30.0, {"a": {"b": None}})
    assert (made.agent_type, made.reason, made.created_by) == ("writer", "mended", ACTOR)
    assert (made.matched, made.is_exact, made.moved, made.outstanding) == (2, True, 0, 0)
    (event,) = await said(shared, "evt.operation.created")
    assert (event["actor"], event["workspace"], event["task_id"]) == (ACTOR, "default", None)
    told = payload_of(event)
    assert (told["operation_id"], told["matched"], told["reason"]) == (str(made.id), 2, "mended")


async def test_another_workspace_has_another_ones_operations(shared: Database) -> None:
    made = await asked(shared)
    for look in (
        read_operation(shared, made.id, workspace="other"),
        pause_operation(shared, made.id, workspace="other", actor=ACTOR),
        cancel_operation(shared, made.id + 1, workspace="default", actor=ACTOR),
    ):
        with pytest.raises(NotFoundError):
            await look
    assert (await list_operations(shared, workspace="other", limit=10)).rows == []
    assert (await seen(shared, made)).state is State.PENDING


async def test_they_are_listed_page_by_page_the_latest_first(shared: Database) -> None:
    made = [(await asked(shared)).id for _ in range(5)]
    await cancel_operation(shared, made[2], workspace="default", actor=ACTOR)
    listed: list[int] = []
    after: str | None = None
    while True:
        page = await list_operations(
            shared, workspace="default", limit=2, after=None if after is None else int(after)
        )
        listed += [one.id for one in page.rows]
        if (after := page.next_cursor) is None:
            break
    assert listed == made[::-1]
    ended = await list_operations(shared, workspace="default", states=[State.CANCELLED], limit=2)
    assert [one.id for one in ended.rows] == [made[2]]


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
    assert (after["uncounted_attempts"], after["released"], after["operation_id"]) == (
        after["attempt"],
        0,
        made.id,
    )
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
    assert event["route"] == "worker.p1"
    done = await seen(shared, made)
    assert (done.moved, done.skipped, done.skipped_by, done.outstanding) == (1, 0, {}, 1)
    ended = payload_of((await said(shared, "evt.operation.ended"))[0])
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


async def test_an_operation_leaves_alone_what_a_later_one_has_moved(shared: Database) -> None:
    """A storm found it: a cancel that was still running cancelled again what a redrive had brought back."""
    task_id = (await submit(shared)).id
    cancel = await asked(shared, "cancel", filter="status:queued")
    await step(shared)
    assert (await row_of(shared, task_id))["status"] == "cancelled"
    await asked(shared, filter="status:cancelled")
    again = "update grns.operations set state = 'running', due_at = now(), ended_at = null,"
    again += " is_exhausted = false, page_cursor = null where id = $1"
    for _ in range(2):  # the cancel may end first
        if (await row_of(shared, task_id))["status"] == "cancelled":
            await step(shared)
    assert (await row_of(shared, task_id))["status"] == "queued"
    await fetch(shared, again, cancel.id)
    moved = await step(shared)
    assert moved is not None
    assert moved.tasks == 0
    assert (await row_of(shared, task_id))["status"] == "queued"


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
    event = (await said(shared, "evt.task.queued"))[-1]
    assert (event["task_id"], event["route"]) == (small, "writer.p2")


# ---------------------------------------------------------------- discarded, cancelled


async def test_a_batch_is_discarded(shared: Database) -> None:
    """It is no transition; what was discarded before is left out of what a filter finds."""
    ids = await dead_tasks(shared, 3)
    cancelled = (await place(shared, "cancelled")).id
    await discard_tasks(shared, [ids[0]], workspace="default", actor=ACTOR)
    before = await rows_of(shared, [*ids, cancelled])
    made = await asked(shared, "discard", filter="status:dead,cancelled", reason="hopeless")
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
        row, told = after[event["task_id"]], payload_of(event)
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
    assert [payload_of(event).get("fingerprint") for event in redriven] == [None, None]


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
        assert (event["actor"], payload_of(event)["reason"]) == (ACTOR, "no more")
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


async def _follow(database: Database, limit: int = 100) -> Followed:
    """Look once what became of redriven tasks, as if it were time to."""
    await fetch(database, "update grns.operations set follow_at = now() where follow_at is not null")
    followed = await batches.follow(database, limit, pause_seconds=60.0)
    assert followed is not None
    return followed


async def test_what_ended_long_ago_is_forgotten(shared: Database) -> None:
    await dead_tasks(shared, 2)
    old, fresh = await asked(shared), await asked(shared)
    await step(shared)
    await cancel_operation(shared, fresh.id, workspace="default", actor=ACTOR)
    await fetch(
        shared, "update grns.operations set ended_at = ended_at - interval '2 d' where id = $1", old.id
    )
    assert await deleted(shared, "delete_operations", 10, 86_400.0) == 1
    assert (await seen(shared, fresh)).state is State.CANCELLED
    with pytest.raises(NotFoundError):
        await seen(shared, old)
    assert not await fetch(shared, "select from grns.operation_tasks")
