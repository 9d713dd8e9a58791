"""Answers that never come: what was asked may have happened; it is found out, never done twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from grns.errors import OutcomeUnknownError, UnavailableError
from grns.maintenance.reaper import reap
from grns.maintenance.scheduler import promote
from grns.model.outcome import Claim, Finished, Outcome, Unclaimed, Verb
from grns.postgres.database import Database, Row
from grns.worker.claims import Claims
from grns.worker.finishes import Finish, Finishes, finish_in
from tests.support.harness import eventually, submit, submit_many
from tests.support.store import (
    OTHER_WORKER,
    WORKER,
    claim,
    ending,
    fall_due,
    fetch,
    finish,
    is_waiting_for_lock,
    kinds_of,
    lapse,
    log_of,
    refusal,
    row_of,
    stranger,
)


class Flaky(Database):
    """Loses the answer to a statement: before it ran, or after it has committed."""

    def __init__(self, url: str) -> None:
        super().__init__(url, name="flaky")
        self.asked: list[str] = []
        self.losing_answer: set[str] = set()
        self.refusing: set[str] = set()

    async def run(self, name: str, *arguments: Any) -> Sequence[Row]:
        """Run a statement; its answer may get lost, once."""
        self.asked.append(name)
        if name in self.refusing:
            self.refusing.remove(name)
            raise UnavailableError("no connection")
        rows = await super().run(name, *arguments)
        if name in self.losing_answer:
            self.losing_answer.remove(name)
            raise OutcomeUnknownError("no answer")
        return rows


@asynccontextmanager
async def flaky(database: Database) -> AsyncIterator[Flaky]:
    """Open connections to the same database that lose answers."""
    other = Flaky(database.url)
    await other.connect()
    try:
        yield other
    finally:
        await other.close()


async def cut(connection: asyncpg.Connection) -> None:
    """Terminate the statement of ours that waits for a lock."""
    await connection.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database()"
        " and application_name = 'grns test' and wait_event_type = 'Lock'"
    )


async def test_a_claim_whose_answer_was_lost_is_read_back(shared: Database) -> None:
    ids, commands = await submit_many(shared, 3), [uuid4() for _ in range(3)]
    taken = await claim(shared, ids[1], who=OTHER_WORKER)
    async with flaky(shared) as lossy:
        lossy.losing_answer = {"claim"}
        claims = Claims(lossy, WORKER, batch_limit=10)
        answers = await asyncio.gather(*(claims.claim(*pair) for pair in zip(ids, commands, strict=True)))
    assert answers[1] == Unclaimed(ids[1], "lost_race")
    for answer, task_id in ((answers[0], ids[0]), (answers[2], ids[2])):
        assert isinstance(answer, Claim)
        row = await row_of(shared, task_id)
        assert (row["lease_id"], row["attempt"]) == (answer.lease_id, answer.attempt) == (answer.lease_id, 1)
        assert (await kinds_of(shared, task_id)).count("evt.task.claimed") == 1
        assert (await finish(shared, answer)).status == "succeeded"
    assert (await finish(shared, taken)).status == "succeeded"


async def test_a_claim_that_was_read_back_is_the_same_as_one_that_was_answered(shared: Database) -> None:
    """Its events answer the same command."""
    task_id, command = (await submit(shared)).id, uuid4()
    async with flaky(shared) as lossy:
        lossy.losing_answer = {"claim"}
        got = await Claims(lossy, WORKER, batch_limit=1).claim(task_id, command)
    assert isinstance(got, Claim)
    await finish(shared, got)
    claimed, completed = (await log_of(shared, task_id))[2:]
    assert claimed["causation_id"] == command
    assert (got.causation_id, completed["causation_id"]) == (command, command)


async def test_a_claim_that_was_cut_before_its_commit_has_claimed_nothing(shared: Database) -> None:
    task_id = (await submit(shared)).id
    claims = Claims(shared, WORKER, batch_limit=1)
    async with stranger(shared) as connection:
        await connection.execute("lock table grns.events in share mode")
        asked = asyncio.create_task(claims.claim(task_id))
        await eventually(lambda: is_waiting_for_lock(shared))
        await cut(connection)
        with pytest.raises(UnavailableError):
            await asked
    assert (await row_of(shared, task_id))["attempt"] == 0
    assert isinstance(await claims.claim(task_id), Claim)


async def test_what_a_claim_has_claimed_is_kept_though_the_rest_cannot_be_explained(shared: Database) -> None:
    """Dropping it would spend an attempt and a lease on nothing."""
    mine, others = await submit_many(shared, 2)
    await claim(shared, others, who=OTHER_WORKER)
    async with flaky(shared) as lossy:
        lossy.refusing = {"explain_unclaimed"}
        claims = Claims(lossy, WORKER, batch_limit=10)
        answers = await asyncio.gather(claims.claim(mine), claims.claim(others), return_exceptions=True)
    assert (await row_of(shared, mine))["status"] == "running"
    assert isinstance(answers[0], Claim), answers[0]
    assert not isinstance(answers[1], Claim)


@pytest.mark.parametrize(
    ("verb", "status"), [(Verb.SUCCEED, "succeeded"), (Verb.FAIL, "failed"), (Verb.RETRY, "retry_wait")]
)
async def test_a_finish_whose_answer_was_lost_is_written_once(
    shared: Database, verb: Verb, status: str
) -> None:
    ours = ending(await claim(shared, (await submit(shared)).id), verb)
    async with flaky(shared) as lossy:
        lossy.losing_answer = {"finish"}
        finishes = Finishes(lossy, batch_limit=10)
        with pytest.raises(OutcomeUnknownError):
            await finishes.finish(ours)
        assert ours.is_unsure
        before = await row_of(shared, ours.claim.id), await log_of(shared, ours.claim.id)
        assert await finishes.read_back(ours) == Finished(status)
        assert await finishes.finish(ours) == Finished(status)
        assert lossy.asked.count("finish") == 1, "what is known to be written is not asked for again"
    assert (await row_of(shared, ours.claim.id), await log_of(shared, ours.claim.id)) == before
    assert before[0]["status"] == status


async def test_a_finish_that_was_cut_before_its_commit_is_written_at_the_second_try(shared: Database) -> None:
    ours = ending(await claim(shared, (await submit(shared)).id))
    finishes = Finishes(shared, batch_limit=10)
    async with stranger(shared) as connection:
        await connection.execute("lock table grns.events in share mode")
        asked = asyncio.create_task(finishes.finish(ours))
        await eventually(lambda: is_waiting_for_lock(shared))
        await cut(connection)
        with pytest.raises(OutcomeUnknownError):
            await asked
    assert await finishes.read_back(ours) is None
    assert (await finishes.finish(ours)).status == "succeeded"
    assert (await kinds_of(shared, ours.claim.id)).count("evt.task.completed") == 1


async def test_a_finish_that_commits_between_the_look_and_the_second_try_is_recognised(
    shared: Database,
) -> None:
    ours = ending(await claim(shared, (await submit(shared)).id))
    ours.is_unsure = True

    class Late(Flaky):
        async def run(self, name: str, *arguments: Any) -> Sequence[Row]:
            rows = await super().run(name, *arguments)
            if self.asked == ["read_finishes"]:  # the first try commits just behind this look
                await Database.run(self, "finish", *_columns_of(ours))
            return rows

    late = Late(shared.url)
    await late.connect()
    try:
        assert (await Finishes(late, batch_limit=1).finish(ours)).status == "succeeded"
    finally:
        await late.close()
    assert late.asked == ["read_finishes", "finish", "read_finishes"]
    assert (await kinds_of(shared, ours.claim.id)).count("evt.task.completed") == 1


def _columns_of(ours: Finish) -> tuple[list[object], ...]:
    said = ours.outcome
    return (
        [ours.claim.id], [ours.claim.attempt], [ours.claim.lease_id], [ours.event_id], [said.verb.value],
        [said.result], [said.error], [said.error_class], [said.fingerprint], [said.backoff_seconds],
        [ours.claim.causation_id], [ours.claim.workspace], [said.is_usual],
    )  # fmt: skip


async def test_an_unsure_finish_that_lost_the_lease_is_lost(shared: Database) -> None:
    ours = ending(await claim(shared, (await submit(shared)).id))
    ours.is_unsure = True
    await lapse(shared, ours.claim.id)
    await reap(shared, 1, None)
    assert (await Finishes(shared, batch_limit=1).finish(ours)).is_lost


async def test_what_was_written_is_told_although_the_task_has_moved_on(shared: Database) -> None:
    """The retry was promoted, and claimed by another, before anybody looked."""
    ours = ending(await claim(shared, (await submit(shared)).id), Verb.RETRY)
    async with flaky(shared) as lossy:
        lossy.losing_answer = {"finish"}
        finishes = Finishes(lossy, batch_limit=10)
        with pytest.raises(OutcomeUnknownError):
            await finishes.finish(ours)
    await fall_due(shared, ours.claim.id)
    assert len(await promote(shared, 1, None)) == 1
    await claim(shared, ours.claim.id, who=OTHER_WORKER)
    before = await log_of(shared, ours.claim.id)
    assert await Finishes(shared, batch_limit=1).finish(ours) == Finished("retry_wait")
    assert await log_of(shared, ours.claim.id) == before


async def test_in_a_batch_only_the_unsure_ones_are_looked_up(shared: Database) -> None:
    written, open_one = [ending(await claim(shared, task_id)) for task_id in await submit_many(shared, 2)]
    async with flaky(shared) as lossy:
        lossy.losing_answer = {"finish"}
        finishes = Finishes(lossy, batch_limit=10)
        with pytest.raises(OutcomeUnknownError):
            await finishes.finish(written)
        both = await asyncio.gather(finishes.finish(written), finishes.finish(open_one))
    assert [one.status for one in both] == ["succeeded", "succeeded"]
    for one in (written, open_one):
        assert (await kinds_of(shared, one.claim.id)).count("evt.task.completed") == 1


async def test_a_commit_whose_answer_was_lost_is_read_back(shared: Database) -> None:
    """A handler's own transaction: the connection dies at COMMIT."""
    owner = await claim(shared, (await submit(shared)).id)
    ours = Finish(owner, Outcome(Verb.SUCCEED, result="1"), uuid4(), is_unsure=True)
    with pytest.raises(OutcomeUnknownError):
        await _finish_and_cut(shared, ours)
    finishes = Finishes(shared, batch_limit=1)
    row = await eventually(lambda: _settled(shared, ours.claim.id))
    assert row is not None
    assert row["status"] == "running", "cut before COMMIT was sent: nothing was written"
    assert await finishes.read_back(ours) is None
    assert (await finishes.finish(ours)).status == "succeeded"


async def _finish_and_cut(database: Database, ours: Finish) -> None:
    async with database.transaction() as connection:
        await finish_in(connection, ours)
        connection.terminate()


async def _settled(database: Database, task_id: str) -> Row | None:
    rows = await fetch(database, "select * from grns.tasks where id = $1 for update skip locked", task_id)
    return rows[0] if rows else None


async def test_a_connection_that_was_cut_is_not_lent_again(shared: Database) -> None:
    task_id = (await submit(shared)).id
    async with stranger(shared) as connection:
        await connection.execute(
            "select pg_terminate_backend(pid, 5000) from pg_stat_activity"
            " where datname = current_database() and application_name = 'grns test'"
        )
    reasons = []
    for _ in range(10):
        try:
            reasons.append(await refusal(shared, "gr-nothing"))
        except UnavailableError:
            reasons.append("unavailable")
    assert reasons[-1] == "unknown_task", reasons
    assert reasons.count("unavailable") <= 1, "one connection of the pool was open, so one answer is lost"
    assert (await claim(shared, task_id)).attempt == 1


async def test_a_closed_database_says_so(shared: Database) -> None:
    async with flaky(shared) as other:
        pass
    with pytest.raises(UnavailableError, match="closed"):
        await Claims(other, WORKER, batch_limit=1).claim("gr-nothing")


async def test_what_the_floor_claimed_without_an_answer_is_read_back(shared: Database) -> None:
    """Else a live worker would hold tasks that it does not know of, each for an attempt."""
    ids = {task.id for task in [await submit(shared), await submit(shared)]}
    async with flaky(shared) as database:
        database.losing_answer.add("claim_next")
        found = await Claims(database, WORKER, batch_limit=1).claim_next(5, older_than_seconds=0.0)
    assert ids <= {one.id for one in found}
    assert {one.attempt for one in found} == {1}
