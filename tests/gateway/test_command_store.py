"""Orders carried out: once however often they come, and remembered only where they had an effect."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID, uuid4

import pytest

from grns.errors import (
    ConflictError,
    ContendedError,
    InvalidInputError,
    NotFoundError,
    OutcomeUnknownError,
)
from grns.gateway.command_store import CancelCommand, CommandResult, CommandStore, SubmitCommand
from grns.model.submission import submission
from grns.postgres.database import Database
from grns.settings import load
from grns.tasks.submit import prepare
from tests.support.harness import eventually
from tests.support.store import (
    fetch,
    is_waiting_for_lock,
    kinds_of,
    locked,
    log_of,
    place,
    redrive,
    row_of,
    stranger,
)

_ACTOR = "nats"
_CUT = """
    select pg_terminate_backend(pid) from pg_stat_activity
    where datname = current_database() and application_name = 'grns test' and wait_event_type = 'Lock'
"""


@pytest.fixture
def orders(shared: Database) -> CommandStore:
    """Who carries out orders."""
    return CommandStore(shared, batch_limit=10, actor=_ACTOR)


def submit(message_id: UUID | None = None, **fields: Any) -> SubmitCommand:
    """Return a submission as it comes over the bus: with a key, its message's id where it says none."""
    chosen = message_id or uuid4()
    said = submission(**{"task_type": "noop", "idempotency_key": str(chosen)} | fields)
    return SubmitCommand(chosen, prepare(said, load().payload_limits))


def cancel(task_id: str, message_id: UUID | None = None, reason: str | None = None) -> CancelCommand:
    """Return a cancellation in the default workspace."""
    return CancelCommand(message_id or uuid4(), "default", task_id, reason)


async def marks(database: Database) -> set[tuple[str, UUID]]:
    """Return what is remembered."""
    rows = await fetch(database, "select consumer, message_id from grns.processed_messages")
    return {(row["consumer"], row["message_id"]) for row in rows}


async def count(database: Database) -> int:
    """Return how many tasks there are."""
    rows = await fetch(database, "select count(*) as tasks from grns.tasks")
    return int(rows[0]["tasks"])


# ---------------------------------------------------------------- submissions


async def test_a_submission_is_carried_out_once(orders: CommandStore, shared: Database) -> None:
    order = submit(payload={"n": 1}, priority=0)
    first = await orders.submit(order)
    assert (first.answer, first.task_id) == ("created", order.prepared.id)
    again = submit(order.message_id, payload={"n": 1}, priority=0)
    assert await orders.submit(again) == CommandResult("repeated", first.task_id)
    assert await count(shared) == 1
    assert await kinds_of(shared, first.task_id or "") == ["evt.task.queued", "cmd.task.execute"]
    assert await marks(shared) == {("cmd.task.submit.v1", order.message_id)} == {order.mark}


async def test_a_submission_with_needs_is_carried_out_once(orders: CommandStore, shared: Database) -> None:
    need = (await orders.submit(submit())).task_id or ""
    order = submit(needs=({"task": need},))
    first = await orders.submit(order)
    assert first.answer == "created"
    assert await orders.submit(order) == CommandResult("repeated", first.task_id)
    assert (await row_of(shared, first.task_id or ""))["waits_for"] == "tasks"
    unknown = submit(needs=({"task": "gr-nothing"},))
    with pytest.raises(InvalidInputError, match="no task gr-nothing"):
        await orders.submit(unknown)
    assert unknown.mark not in await marks(shared), "it may come again"


async def test_of_many_copies_at_once_one_is_carried_out(shared: Database) -> None:
    """In one batch and in another process's."""
    here, there = (CommandStore(shared, batch_limit=10, actor=_ACTOR) for _ in range(2))
    ids = [uuid4() for _ in range(8)]
    copies = [(desk, submit(one, payload={"of": str(one)})) for one in ids for desk in (here, there, here)]
    answers = await asyncio.gather(*(desk.submit(copy) for desk, copy in copies))
    assert await count(shared) == len(ids)
    told: dict[UUID, list[CommandResult]] = {one: [] for one in ids}
    for (_, copy), answer in zip(copies, answers, strict=True):
        told[copy.message_id].append(answer)
    for same in told.values():
        assert sorted(answer.answer for answer in same) == ["created", "repeated", "repeated"]
        assert len({answer.task_id for answer in same}) == 1


async def test_who_asked_is_in_the_log(orders: CommandStore, shared: Database) -> None:
    carried = await orders.submit(submit())
    events = [row for row in await log_of(shared, carried.task_id or "") if row["kind"].startswith("evt.")]
    assert {row["actor"] for row in events} == {_ACTOR}


async def test_one_whose_key_has_its_task_finds_that(orders: CommandStore, shared: Database) -> None:
    first = await orders.submit(submit(idempotency_key="k", payload={"n": 1}))
    order = submit(idempotency_key="k", payload={"n": 1})
    assert await orders.submit(order) == CommandResult("exists", first.task_id)
    assert await orders.submit(order) == CommandResult("repeated", first.task_id)
    assert await count(shared) == 1


async def test_a_conflict_is_not_remembered(orders: CommandStore, shared: Database) -> None:
    """Whoever dies before the message is buried has lost nothing: it is refused again."""
    await orders.submit(submit(idempotency_key="k", payload={"n": 1}))
    known = await marks(shared)
    order = submit(idempotency_key="k", payload={"n": 2})
    for _ in range(2):
        with pytest.raises(ConflictError, match="'k'"):
            await orders.submit(order)
    assert await marks(shared) == known
    mended = submit(order.message_id, idempotency_key="other", payload={"n": 2})
    assert (await orders.submit(mended)).answer == "created"


async def test_a_conflict_refuses_no_other_of_its_batch(orders: CommandStore, shared: Database) -> None:
    await orders.submit(submit(idempotency_key="k"))
    said = [submit(payload={"n": n}, idempotency_key="k" if n == 3 else None) for n in range(6)]
    answers = await asyncio.gather(*(orders.submit(one) for one in said), return_exceptions=True)
    assert [type(answer) for answer in answers] == [CommandResult] * 3 + [ConflictError] + [CommandResult] * 2
    assert await count(shared) == 6
    assert said[3].mark not in await marks(shared)


async def test_one_id_for_two_submissions_is_a_conflict(orders: CommandStore, shared: Database) -> None:
    """Were it taken for a copy, a sender that makes one id for all would lose all tasks but the first."""
    first = submit(payload={"n": 1})
    liar = submit(first.message_id, payload={"n": 2})
    assert (await orders.submit(first)).answer == "created"
    for other in (liar, submit(first.message_id, payload={"n": 1}, task_type="another")):
        with pytest.raises(ConflictError, match=str(first.message_id)):
            await orders.submit(other)
    assert await count(shared) == 1


async def test_what_was_deleted_since_is_not_created_anew(orders: CommandStore, shared: Database) -> None:
    order = submit()
    await orders.submit(order)
    await fetch(shared, "delete from grns.tasks")
    assert await orders.submit(order) == CommandResult("repeated", None)
    assert await count(shared) == 0


async def test_workspaces_do_not_share_ids(orders: CommandStore, shared: Database) -> None:
    """Nobody can take another's messages away by sending some under their ids before."""
    order = submit(payload={"n": 1})
    other = submit(order.message_id, payload={"n": 2}, workspace="acme")
    assert [(await orders.submit(one)).answer for one in (order, other)] == ["created", "created"]
    assert other.mark == ("cmd.task.submit.v1.acme", order.message_id)
    rows = await fetch(shared, "select workspace from grns.tasks")
    assert {row["workspace"] for row in rows} == {"default", "acme"}


async def test_a_key_that_a_stranger_holds_delays_no_other(orders: CommandStore, shared: Database) -> None:
    async with stranger(shared) as other:
        await other.execute("select grns.submit_task('noop', idempotency_key => 'held')")
        said = [submit(), submit(idempotency_key="held"), submit()]
        answers = await asyncio.gather(*(orders.submit(one) for one in said), return_exceptions=True)
        assert isinstance(answers[1], ContendedError)
        assert [answers[0], answers[2]] == [CommandResult("created", said[n].prepared.id) for n in (0, 2)]
        assert said[1].mark not in await marks(shared)
    assert (await orders.submit(said[1])).answer == "created"


async def test_what_got_no_answer_is_carried_out_or_not_and_known_if_so(
    orders: CommandStore, shared: Database
) -> None:
    order = submit()
    async with stranger(shared) as other:
        await other.execute("lock table grns.tasks in access exclusive mode")
        asked = asyncio.create_task(orders.submit(order))
        await eventually(lambda: is_waiting_for_lock(shared))
        await fetch(shared, _CUT)
        with pytest.raises(OutcomeUnknownError):
            await asked
    assert await marks(shared) == set(), "the note goes with its effect"
    assert (await orders.submit(order)).answer == "created"
    assert (await orders.submit(order)).answer == "repeated"


# ---------------------------------------------------------------- cancellations


async def test_a_cancellation_is_carried_out_once(orders: CommandStore, shared: Database) -> None:
    """What somebody has opened again since is not ended by a copy that comes late."""
    task_id = (await place(shared, "queued")).id
    order = cancel(task_id, reason="enough")
    assert await orders.cancel(order) == CommandResult("cancelled", task_id)
    assert (await log_of(shared, task_id))[-1]["actor"] == _ACTOR
    await redrive(shared, task_id)
    assert await orders.cancel(order) == CommandResult("repeated", task_id)
    assert (await row_of(shared, task_id))["status"] == "queued"


async def test_a_running_task_is_asked_to_end(orders: CommandStore, shared: Database) -> None:
    owner = await place(shared, "running")
    assert await orders.cancel(cancel(owner.id)) == CommandResult("requested", owner.id, "worker-one")
    assert (await row_of(shared, owner.id))["cancel_requested_at"] is not None


@pytest.mark.parametrize("status", ["succeeded", "failed", "dead", "cancelled"])
async def test_one_that_has_ended_stays_as_it_is(orders: CommandStore, shared: Database, status: str) -> None:
    task_id = (await place(shared, status)).id
    before = await row_of(shared, task_id)
    assert await orders.cancel(cancel(task_id)) == CommandResult(status, task_id)
    assert await row_of(shared, task_id) == before


async def test_a_task_that_is_not_there_is_not_remembered(orders: CommandStore, shared: Database) -> None:
    """It may not be committed yet: then the message comes again, and must have its effect."""
    async with stranger(shared) as other:
        task_id = await other.fetchval("select grns.submit_task('noop')")
        order = cancel(task_id)
        for _ in range(2):
            with pytest.raises(NotFoundError, match=task_id):
                await orders.cancel(order)
        assert await marks(shared) == set()
        await other.execute("commit")
    assert (await orders.cancel(order)).answer == "cancelled"


async def test_of_many_each_gets_its_own_answer(orders: CommandStore, shared: Database) -> None:
    queued, running, dead = [(await place(shared, road)).id for road in ("queued", "running", "dead")]
    said = [
        cancel(queued), cancel("gr-nothing"), cancel(running, reason="a"), cancel(dead, reason="b"),
        CancelCommand(uuid4(), "acme", queued, None),
    ]  # fmt: skip
    said.append(said[1])
    said.append(said[0])
    answers = await asyncio.gather(*(orders.cancel(one) for one in said), return_exceptions=True)
    words = [one.answer if isinstance(one, CommandResult) else type(one).__name__ for one in answers]
    assert words == [
        "cancelled", "NotFoundError", "requested", "dead", "NotFoundError", "NotFoundError", "repeated",
    ]  # fmt: skip
    assert {mark[0] for mark in await marks(shared)} == {
        f"cmd.task.cancel.v1 {task_id}" for task_id in (queued, running, dead)
    }


async def test_one_id_for_two_tasks_ends_both(orders: CommandStore, shared: Database) -> None:
    message_id = uuid4()
    for _ in range(2):
        task_id = (await place(shared, "queued")).id
        assert (await orders.cancel(cancel(task_id, message_id))).answer == "cancelled"


async def test_a_row_that_a_stranger_holds_delays_no_other(orders: CommandStore, shared: Database) -> None:
    held, free = [(await place(shared, "queued")).id for _ in range(2)]
    async with locked(shared, held):
        answers = await asyncio.gather(
            *(orders.cancel(cancel(task_id)) for task_id in (free, held)), return_exceptions=True
        )
    assert answers[0] == CommandResult("cancelled", free)
    assert isinstance(answers[1], ContendedError)
    assert (await row_of(shared, held))["status"] == "queued"
