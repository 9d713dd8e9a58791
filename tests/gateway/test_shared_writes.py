"""Renewals and outcomes over HTTP that come at the same time: one statement for many, an answer for each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from grns.errors import ContendedError, LeaseLostError
from grns.gateway.shared_writes import OpenDatabase, SharedWrites
from grns.model.claim_token import ClaimToken
from grns.model.outcome import Claim, Outcome, Verb
from grns.postgres.database import Database, Session
from grns.worker.finishes import Finish
from tests.support.harness import submit
from tests.support.store import claim, fetch, locked, row_of

TASKS = 20


def opening(database: Database, opened: list[int]) -> OpenDatabase:
    """Return what lends the database, one at a time, and counts how often; it takes a moment."""
    turn = asyncio.Semaphore(1)

    @asynccontextmanager
    async def lent() -> AsyncIterator[Database | Session]:
        async with turn:
            opened.append(1)
            await asyncio.sleep(0.05)
            yield database

    return lent


def token_of(claimed: Claim) -> ClaimToken:
    return ClaimToken(
        task_id=claimed.id, workspace="default", task_type=claimed.task_type, attempt=claimed.attempt,
        lease_id=claimed.lease_id, agent_id="worker-1", lease_seconds=60.0, claimed_at=0.0, trace_id="t",
        agent_type="worker", priority=1,
        causation_id=None, attempt_limit=claimed.attempt_limit, uncounted_attempts=0,
    )  # fmt: skip


async def claims_of(database: Database) -> list[Claim]:
    return [await claim(database, (await submit(database)).id) for _ in range(TASKS)]


def finish_of(claimed: Claim, token: ClaimToken) -> Finish:
    return Finish(claimed, Outcome(Verb.SUCCEED, result="1"), token.event_id("succeed"))


async def test_renewals_share_a_statement_and_each_has_its_answer(shared: Database) -> None:
    claims, opened, writes = await claims_of(shared), list[int](), SharedWrites()
    tokens = [token_of(one) for one in claims]
    tokens[3] = tokens[3].model_copy(update={"attempt": 7})
    await fetch(shared, "update grns.tasks set cancel_requested_at = now() where id = $1", claims[4].id)
    lend = opening(shared, opened)
    async with locked(shared, claims[5].id):
        answers: list[Any] = await asyncio.gather(
            *(writes.renew(lend, one) for one in tokens), return_exceptions=True
        )
    assert len(opened) <= 3
    assert [type(one) for one in (answers[3], answers[5])] == [LeaseLostError, ContendedError]
    others = [one for place, one in enumerate(answers) if place not in (3, 5)]
    assert [one.is_cancel_requested for one in others] == [False] * 3 + [True] + [False] * (TASKS - 6)
    assert not (await writes.renew(lend, tokens[5])).is_overdue


async def test_outcomes_share_a_statement_and_may_be_said_again(shared: Database) -> None:
    claims, opened, writes = await claims_of(shared), list[int](), SharedWrites()
    finishes = [finish_of(one, token_of(one)) for one in claims]
    finishes[3] = replace(finishes[3], claim=replace(claims[3], attempt=7))
    lend = opening(shared, opened)
    async with locked(shared, claims[5].id):
        answers: list[Any] = await asyncio.gather(
            *(writes.finish(lend, one) for one in finishes), return_exceptions=True
        )
    assert len(opened) <= 3
    assert isinstance(answers[5], ContendedError)
    said = [one.status for place, one in enumerate(answers) if place != 5]
    assert said == ["succeeded"] * 3 + ["lost"] + ["succeeded"] * (TASKS - 5)
    assert [(await row_of(shared, one.id))["status"] for one in claims[3:6]] == [
        "running",
        "succeeded",
        "running",
    ]

    again = [finish_of(one, token_of(one)) for one in claims[:3]]
    assert [(await writes.finish(lend, one)).status for one in again] == ["succeeded"] * 3
