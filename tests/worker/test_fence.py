"""The fence: who does not own a task writes nothing; who is only kept waiting is told so."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from uuid import uuid4

import pytest

from grns.errors import ContendedError, InvalidInputError, LeaseLostError, UnavailableError
from grns.maintenance.reaper import reap
from grns.model.outcome import Claim, Finished, Outcome, Verb
from grns.postgres.database import Database
from grns.postgres.statements import paths, statement
from grns.worker.claims import Claims
from grns.worker.finishes import Finish, Finishes, finish_in
from grns.worker.renewals import HeldLease, RenewResult, renew
from tests.support.harness import eventually, submit, submit_many
from tests.support.store import (
    LEASE_SECONDS,
    OTHER_WORKER,
    WORKER,
    cancel,
    claim,
    ending,
    fetch,
    finish,
    forged,
    is_waiting_for_lock,
    kinds_of,
    lapse,
    locked,
    log_of,
    place,
    redrive,
    release,
    row_of,
    stranger,
)

RENEWED, LOCKED, LOST = (
    RenewResult("renewed", False),
    RenewResult("locked", False),
    RenewResult("lost", False),
)


def held(claim: Claim) -> HeldLease:
    """Return a claim as the heartbeat process knows it."""
    return HeldLease(claim.id, claim.attempt, claim.lease_id, claim.workspace)


async def refused_everywhere(database: Database, zombie: Claim) -> None:
    """Try all writes of an attempt; none may change the row or the log."""
    before = await row_of(database, zombie.id), await log_of(database, zombie.id)
    for verb in (Verb.SUCCEED, Verb.FAIL, Verb.RETRY, Verb.CANCEL):
        assert await finish(database, zombie, verb) == Finished("lost", None)
    assert await release(database, zombie) == {zombie.id: "lost"}
    assert await renew(database, [held(zombie)], LEASE_SECONDS) == [LOST]
    async with database.connection() as connection:
        with pytest.raises(LeaseLostError):
            await finish_in(connection, ending(zombie))
    assert (await row_of(database, zombie.id), await log_of(database, zombie.id)) == before


async def test_another_lease_may_not_write(shared: Database) -> None:
    """The same attempt under another random lease: what a failover that lost commits hands out."""
    owner = await claim(shared, (await submit(shared)).id)
    await refused_everywhere(shared, replace(owner, lease_id=uuid4()))
    assert (await finish(shared, owner)).status == "succeeded"


async def test_another_workspace_may_not_write(shared: Database) -> None:
    """M3: task, attempt and lease are right, and the row is another workspace's."""
    owner = await claim(shared, (await submit(shared)).id)
    await refused_everywhere(shared, replace(owner, workspace="rival"))
    assert (await finish(shared, owner)).status == "succeeded"
    ours = ending(owner)
    await refused_everywhere(shared, owner)
    assert await Finishes(shared, batch_limit=1).read_back(replace(ours, claim=owner)) is None


async def test_an_older_attempt_of_the_same_worker_may_not_write(shared: Database) -> None:
    task_id = (await submit(shared)).id
    older = await claim(shared, task_id)
    await lapse(shared, task_id)
    await reap(shared, 10, None)
    newer = await claim(shared, task_id)
    assert (older.attempt, newer.attempt) == (1, 2)
    await refused_everywhere(shared, older)
    await refused_everywhere(shared, replace(newer, attempt=1))
    await refused_everywhere(shared, replace(older, attempt=2))
    assert (await finish(shared, newer)).status == "succeeded"


async def test_another_worker_may_not_write(shared: Database) -> None:
    task_id = (await submit(shared)).id
    await claim(shared, task_id, who=WORKER)
    await refused_everywhere(shared, forged(task_id, attempt=1))


async def test_an_attempt_that_was_reaped_may_not_write(shared: Database) -> None:
    task_id = (await submit(shared)).id
    zombie = await claim(shared, task_id)
    await lapse(shared, task_id)
    await reap(shared, 10, None)
    await refused_everywhere(shared, zombie)


@pytest.mark.parametrize("road", ["succeeded", "failed", "dead", "cancelled_late", "retry_wait", "waiting"])
async def test_an_attempt_that_has_ended_may_not_write(shared: Database, road: str) -> None:
    await refused_everywhere(shared, await place(shared, road))


async def test_a_redrive_does_not_bring_an_old_attempt_back(shared: Database) -> None:
    zombie = await place(shared, "dead")
    assert await redrive(shared, zombie.id) == {zombie.id: "redriven"}
    await refused_everywhere(shared, zombie)
    fresh = await claim(shared, zombie.id)
    assert (fresh.attempt, fresh.counted_attempts) == (2, 1)


async def test_a_lease_that_is_over_counts_until_somebody_takes_it(shared: Database) -> None:
    """No attempt loses its task to the clock alone."""
    ids = await submit_many(shared, 2)
    first, second = [await claim(shared, task_id) for task_id in ids]
    await lapse(shared, *ids)
    assert await renew(shared, [held(first)], LEASE_SECONDS) == [RENEWED]
    assert (await finish(shared, second)).status == "succeeded"
    assert await reap(shared, 10, None) == []


async def test_one_outcome_asked_for_twice_at_once_is_written_once(shared: Database) -> None:
    owner = await claim(shared, (await submit(shared)).id)
    finishes, ours = Finishes(shared, batch_limit=10), ending(owner)
    both = await asyncio.gather(finishes.finish(ours), finishes.finish(ours))
    assert [one.status for one in both] == ["succeeded", "succeeded"]
    assert (await kinds_of(shared, owner.id)).count("evt.task.completed") == 1


async def test_of_two_outcomes_in_one_batch_one_is_written(shared: Database) -> None:
    owner = await claim(shared, (await submit(shared)).id)
    finishes = Finishes(shared, batch_limit=10)
    rivals = [ending(owner, Verb.SUCCEED), ending(owner, Verb.FAIL)]
    answers = await asyncio.gather(*(finishes.finish(one) for one in rivals), return_exceptions=True)
    won = [one for one in answers if isinstance(one, Finished) and not one.is_lost]
    assert len(won) == 1
    assert won[0].status == (await row_of(shared, owner.id))["status"]
    assert len(await log_of(shared, owner.id)) == 4 + (won[0].status == "failed")
    again = [await finishes.finish(one) for one in rivals]
    assert [one.status for one in again] == ["lost", "lost"]


async def test_what_is_named_twice_is_released_and_renewed_once(shared: Database) -> None:
    owner = await claim(shared, (await submit(shared)).id)
    answers_twice = await renew(shared, [held(owner), held(owner)], LEASE_SECONDS)
    assert sorted(answer.verdict for answer in answers_twice) == ["locked", "renewed"]
    answers = await release(shared, owner, owner)
    assert set(answers) == {owner.id}
    row = await row_of(shared, owner.id)
    assert (row["status"], row["uncounted_attempts"], row["version"]) == ("queued", 1, 3)
    assert (await kinds_of(shared, owner.id)).count("evt.task.released") == 1


async def test_a_value_that_postgres_refuses_fails_alone(shared: Database) -> None:
    owners = [await claim(shared, task_id) for task_id in await submit_many(shared, 5)]
    outcomes = [Outcome(Verb.SUCCEED, result=f'{{"n": {place}}}') for place in range(5)]
    outcomes[3] = Outcome(Verb.SUCCEED, result='{"a": "x\\u0000y"}')
    finishes = Finishes(shared, batch_limit=10)
    answers = await asyncio.gather(
        *(finishes.finish(Finish(*pair, uuid4())) for pair in zip(owners, outcomes, strict=True)),
        return_exceptions=True,
    )
    assert isinstance(answers[3], InvalidInputError)
    assert [one.status for one in answers if isinstance(one, Finished)] == ["succeeded"] * 4
    assert (await row_of(shared, owners[3].id))["status"] == "running"
    assert (await finish(shared, owners[3], Verb.FAIL)).status == "failed"


async def test_renew_tells_renewed_locked_and_lost_apart_in_the_order_asked(shared: Database) -> None:
    free, kept, asked, other = [await claim(shared, task_id) for task_id in await submit_many(shared, 4)]
    await cancel(shared, asked.id)
    before = await row_of(shared, free.id)
    async with locked(shared, kept.id):
        wanted = [kept, forged("gr-nothing"), free, replace(other, attempt=7), asked]
        answers = await renew(shared, [held(one) for one in wanted], 77.0)
    assert answers == [LOCKED, LOST, RENEWED, LOST, RenewResult("renewed", True)]
    after = await row_of(shared, free.id)
    assert (after["lease_until"] - after["updated_at"]).total_seconds() == 77.0
    changed = {name for name in after if after[name] != before[name]}
    assert changed == {"lease_until", "updated_at"}, "a renewal is no transition"
    assert (await row_of(shared, kept.id))["lease_until"] < after["lease_until"]
    assert await renew(shared, [held(kept)], 77.0) == [RENEWED]
    assert await renew(shared, [], 77.0) == []


async def test_a_finish_kept_waiting_by_a_stranger_says_so_and_passes_later(shared: Database) -> None:
    kept, free = [await claim(shared, task_id) for task_id in await submit_many(shared, 2)]
    finishes, ours = Finishes(shared, batch_limit=10), ending(kept)
    async with locked(shared, kept.id):
        answers = await asyncio.gather(
            finishes.finish(ours), finishes.finish(ending(free)), return_exceptions=True
        )
        assert isinstance(answers[0], ContendedError)
        assert isinstance(answers[1], Finished)
        assert answers[1].status == "succeeded", "its neighbour is not held up"
        assert await release(shared, kept) == {kept.id: "locked"}
    assert (await row_of(shared, kept.id))["status"] == "running"
    assert (await finishes.finish(ours)).status == "succeeded"
    assert (await kinds_of(shared, kept.id)).count("evt.task.completed") == 1


async def test_a_finish_that_waits_in_a_transaction_goes_on_after_the_stranger(shared: Database) -> None:
    owner = await claim(shared, (await submit(shared)).id)
    async with shared.transaction() as connection:
        async with locked(shared, owner.id):
            waiting = asyncio.create_task(finish_in(connection, ending(owner)))
            done, _ = await asyncio.wait([waiting], timeout=0.1)
            assert not done
        assert (await waiting).status == "succeeded"
    assert (await row_of(shared, owner.id))["status"] == "succeeded"


async def _pay(database: Database, owner: Claim) -> None:
    async with database.transaction() as connection:
        await connection.execute("insert into public.payments values ($1)", owner.id)
        await finish_in(connection, ending(owner))


async def test_what_a_handlers_transaction_writes_stands_and_falls_with_the_finish(shared: Database) -> None:
    await fetch(shared, "create table if not exists public.payments (task_id text)")
    kept, lost = [await claim(shared, task_id) for task_id in await submit_many(shared, 2)]
    await _pay(shared, kept)
    await lapse(shared, lost.id)
    await reap(shared, 10, None)
    with pytest.raises(LeaseLostError):
        await _pay(shared, lost)
    assert [row["task_id"] for row in await fetch(shared, "select task_id from public.payments")] == [kept.id]
    assert (await row_of(shared, lost.id))["status"] == "queued"


async def test_a_handler_may_teach_its_connection_to_encode_json(shared: Database) -> None:
    owner = await claim(shared, (await submit(shared)).id)
    async with shared.transaction() as connection:
        await connection.set_type_codec("jsonb", schema="pg_catalog", encoder=json.dumps, decoder=json.loads)
        outcome = Outcome(Verb.SUCCEED, result='{"paid":true}')
        await finish_in(connection, Finish(owner, outcome, uuid4()))
    rows = await fetch(shared, "select result::text as result from grns.tasks where id = $1", owner.id)
    assert json.loads(rows[0]["result"]) == {"paid": True}


def test_json_is_sent_as_text() -> None:
    """A connection may be the users' own, and encode what is sent as JSON in its own manner."""
    typed = re.compile(r"\$\d+::jsonb?\b")
    places = sorted(paths().values())
    assert len(places) > 40
    assert [place.name for place in places if typed.search(place.read_text())] == []


@pytest.mark.parametrize(
    ("verb", "status"),
    [
        (Verb.RETRY, "cancelled"),
        (Verb.CANCEL, "cancelled"),
        (Verb.SUCCEED, "succeeded"),
        (Verb.FAIL, "failed"),
    ],
)
async def test_a_request_to_cancel_counts_unless_the_attempt_has_come_to_its_end(
    shared: Database, verb: Verb, status: str
) -> None:
    owner = await claim(shared, (await submit(shared)).id)
    assert await cancel(shared, owner.id, reason="first") == {owner.id: "requested"}
    assert await cancel(shared, owner.id, reason="second") == {owner.id: "requested"}
    assert await kinds_of(shared, owner.id) == ["evt.task.queued", "cmd.task.execute", "evt.task.claimed"]
    assert (await finish(shared, owner, verb)).status == status
    ended = await log_of(shared, owner.id)
    assert ("first" in ended[3]["payload"]) == (status == "cancelled")
    assert await cancel(shared, owner.id) == {owner.id: status}
    assert await log_of(shared, owner.id) == ended


async def test_a_cancel_that_waited_for_a_claim_is_a_request(shared: Database) -> None:
    """The row changed between the look and the lock: the guard is judged again."""
    task_id, lease_id = (await submit(shared)).id, uuid4()
    async with stranger(shared) as connection:
        await connection.fetch(
            statement("claim"), [task_id], [lease_id], [None], "w", "default", "worker", ["noop"], [3], 15.0
        )
        asked = asyncio.create_task(cancel(shared, task_id))
        await eventually(lambda: is_waiting_for_lock(shared))
        await connection.execute("commit")
        assert await asked == {task_id: "requested"}
    owner = forged(task_id, attempt=1, lease_id=lease_id)
    assert await renew(shared, [held(owner)], LEASE_SECONDS) == [RenewResult("renewed", True)]


async def test_a_redrive_that_waited_for_another_does_nothing(shared: Database) -> None:
    task_id = (await place(shared, "dead")).id
    async with stranger(shared) as connection:
        await connection.fetch(statement("redrive"), [task_id], "default", None, None)
        asked = asyncio.create_task(redrive(shared, task_id))
        await eventually(lambda: is_waiting_for_lock(shared))
        await connection.execute("commit")
        assert await asked == {task_id: "queued"}
    assert (await row_of(shared, task_id))["version"] == 4


async def test_only_the_own_workspace_cancels_and_redrives(shared: Database) -> None:
    task_id = (await submit(shared, workspace="elsewhere")).id
    assert await cancel(shared, task_id) == {}
    assert await redrive(shared, task_id) == {}
    assert (await row_of(shared, task_id))["status"] == "queued"


@pytest.mark.parametrize("limit", [1, 2])
async def test_a_release_is_forgiven_as_often_as_the_task_may_be_attempted(
    shared: Database, limit: int
) -> None:
    task_id = (await submit(shared, max_attempts=limit)).id
    verdicts: list[str] = []
    while (await row_of(shared, task_id))["status"] == "queued":
        owner = await claim(shared, task_id, who=OTHER_WORKER if verdicts else WORKER)
        assert owner.counted_attempts <= limit
        verdicts.append((await release(shared, owner))[task_id])
    assert verdicts == ["queued"] * (2 * limit - 1) + ["dead"]
    row = await row_of(shared, task_id)
    assert (row["uncounted_attempts"], row["released"], row["attempt"]) == (limit, limit, 2 * limit)

    await redrive(shared, task_id)
    assert (await release(shared, await claim(shared, task_id)))[task_id] == "queued"
    assert (await row_of(shared, task_id))["released"] == 1, "a redrive brings a fresh budget"


async def test_a_task_that_stays_locked_is_not_claimed_by_the_poll(shared: Database) -> None:
    held_id, free_id = await submit_many(shared, 2)
    async with locked(shared, held_id):
        found = await Claims(shared, WORKER, batch_limit=1).claim_next(9, older_than_seconds=0.0)
    assert [one.id for one in found] == [free_id]


async def test_a_table_that_is_locked_for_long_is_unavailable_not_forever(shared: Database) -> None:
    owner = await claim(shared, (await submit(shared)).id)
    async with stranger(shared) as connection:
        await connection.execute("lock table grns.tasks in access exclusive mode")
        with pytest.raises(UnavailableError, match="lock timeout"):
            await finish(shared, owner)
    assert (await finish(shared, owner)).status == "succeeded"
