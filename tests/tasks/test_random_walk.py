"""A random walk over the statements; afterwards the log alone must tell where each task is, and why."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

import pytest

from grns.maintenance.consistency import ConsistencyCheck
from grns.maintenance.reaper import reap
from grns.maintenance.scheduler import promote
from grns.model.outcome import Claim, Verb
from grns.model.task import TRANSITIONS
from grns.postgres.database import Database
from grns.worker.claims import Claims
from grns.worker.finishes import Finishes
from grns.worker.renewals import HeldLease, renew
from tests.support.harness import submit
from tests.support.store import (
    OTHER_WORKER,
    WORKER,
    cancel,
    ending,
    fall_due,
    fetch,
    lapse,
    redrive,
    release,
)

_STEPS = 800


class Walker:
    """Does one thing or another to a handful of tasks; keeps every claim it was ever given."""

    def __init__(self, database: Database, ids: list[str], seed: int) -> None:
        self._database = database
        self._random = random.Random(seed)
        self._ids = ids
        self._claims: list[Claim] = []
        self._finishes = Finishes(database, batch_limit=10)
        self.steps: dict[Callable[[], Awaitable[Any]], int] = {
            self._claim: 8, self._claim_next: 2, self._finish: 9, self._release: 3, self._renew: 2,
            self._lapse: 4, self._reap: 3, self._fall_due: 4, self._promote: 3, self._cancel: 1,
            self._redrive: 2,
        }  # fmt: skip

    async def step(self) -> None:
        """Do something."""
        await self._random.choices(list(self.steps), list(self.steps.values()))[0]()

    def _some(self) -> list[str]:
        return self._random.sample(self._ids, self._random.randint(1, 3))

    def _some_claim(self) -> Claim | None:
        """Return a claim: a recent one, mostly; now and then one that is long over."""
        recent = self._claims[-4:] if self._random.random() < 0.8 else self._claims
        return self._random.choice(recent) if recent else None

    async def _claim(self) -> None:
        who = self._random.choice([WORKER, OTHER_WORKER])
        claims = Claims(self._database, who, batch_limit=10)
        answer = await claims.claim(self._random.choice(self._ids), uuid4())
        if isinstance(answer, Claim):
            self._claims.append(answer)

    async def _claim_next(self) -> None:
        claims = Claims(self._database, WORKER, batch_limit=10)
        self._claims += await claims.claim_next(2, older_than_seconds=0.0)

    async def _finish(self) -> None:
        verb = self._random.choices(
            [Verb.SUCCEED, Verb.FAIL, Verb.RETRY, Verb.SNOOZE, Verb.CANCEL], weights=[2, 2, 5, 1, 1]
        )[0]  # fmt: skip
        if claim := self._some_claim():
            await self._finishes.finish(ending(claim, verb))

    async def _release(self) -> None:
        if claim := self._some_claim():
            await release(self._database, claim)

    async def _renew(self) -> None:
        if claim := self._some_claim():
            await renew(self._database, [HeldLease(claim.id, claim.attempt, claim.lease_id)], 15.0)

    async def _lapse(self) -> None:
        rows = await fetch(self._database, "select id from grns.tasks where status = 'running'")
        await lapse(self._database, *(row["id"] for row in rows if self._random.random() < 0.5))

    async def _reap(self) -> None:
        await reap(self._database, self._random.randint(1, 4), None)

    async def _fall_due(self) -> None:
        rows = await fetch(self._database, "select id from grns.tasks where next_attempt_at is not null")
        await fall_due(self._database, *(row["id"] for row in rows if self._random.random() < 0.5))

    async def _promote(self) -> None:
        await promote(self._database, self._random.randint(1, 4), None)

    async def _cancel(self) -> None:
        await cancel(self._database, *self._some())

    async def _redrive(self) -> None:
        await redrive(self._database, *self._some())


@pytest.mark.parametrize("seed", [1, 2])
async def test_whatever_happens_the_log_tells_the_state(shared: Database, seed: int) -> None:
    ids = [(await submit(shared, max_attempts=limit)).id for limit in (None, 1, 2, 4)]
    ids += [(await submit(shared, delay_seconds=5.0)).id for _ in range(2)]
    walker = Walker(shared, ids, seed)
    for _ in range(_STEPS):
        await walker.step()
        spent = await fetch(
            shared, "select from grns.tasks where attempt - uncounted_attempts > attempt_limit"
        )
        assert not spent, "attempt − uncounted_attempts ≤ limit"
    inspection = ConsistencyCheck(shared, stuck_after_seconds=3600.0)
    await inspection.look_at_all()
    assert inspection.findings == []
    assert inspection.tasks == len(ids)
    kinds = await fetch(shared, "select distinct kind from grns.events where kind like 'evt.%'")
    assert {row["kind"] for row in kinds} == {row.event for row in TRANSITIONS}, "the walk went everywhere"
