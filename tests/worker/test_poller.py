"""The floor of a worker to which the broker delivers: it asks for little, unless it has to catch up."""

from __future__ import annotations

import math
import os
import time
from collections.abc import AsyncIterator

import pytest

from grns.model.outcome import Claim
from grns.postgres.database import Database
from grns.worker.claims import Claims
from grns.worker.leases import SharedLeaseTable
from grns.worker.poller import Poller
from grns.worker.slots import Slots
from tests.support.harness import submit_many
from tests.support.store import fetch
from tests.worker.test_executor import WHO, Stage

SLOTS = 2


class Busy:
    """A worker that has just had a delivery, whenever it is asked; what it starts never ends by itself."""

    def __init__(self, database: Database, table: SharedLeaseTable) -> None:
        self.database = database
        self.started: list[Claim] = []
        self.slots = Slots(SLOTS)
        stage = Stage(database, table)
        self.claims = Claims(database, WHO, batch_limit=10)
        self.floor = Poller(
            claims=self.claims,
            claimer=stage.executor,
            slots=self.slots,
            start=self.started.append,
            last_delivery_at=time.monotonic,
            is_broker_failing=lambda: False,
            after_seconds=2.0,
            longest_pause_seconds=3600.0,
            busy_age_seconds=3600.0,
            emit=stage.emitted.append,
        )

    async def queue(self, count: int) -> None:
        """Let so many tasks have been queued for a while."""
        await submit_many(self.database, count)
        await fetch(
            self.database,
            "update grns.tasks set queued_at = now() - interval '10 s' where queued_at is not null",
        )

    async def tick(self) -> int:
        """Tick once; returns how many tasks that has started, and gives their slots back."""
        before = len(self.started)
        await self.floor.tick()
        taken = len(self.started) - before
        for _ in range(taken):
            self.slots.give()
        return taken


@pytest.fixture
async def busy(shared: Database) -> AsyncIterator[Busy]:
    """A worker to which the broker delivers."""
    table, descriptor = SharedLeaseTable.create(4)
    yield Busy(shared, table)
    table.close()
    os.close(descriptor)


async def test_who_has_to_catch_up_asks_until_there_is_nothing_more(busy: Busy) -> None:
    await busy.queue(2 * SLOTS + 1)
    assert await busy.tick() == 0
    busy.floor.catch_up()
    assert [await busy.tick() for _ in range(3)] == [SLOTS, SLOTS, 1]
    await busy.queue(1)
    assert await busy.tick() == 0, "it has caught up"


async def test_who_is_delivered_to_takes_all_that_has_waited_for_long(busy: Busy) -> None:
    """The commands of many may be lost, while new ones come."""
    await busy.queue(3 * SLOTS + 5)
    busy.floor._busy_age_seconds, busy.floor._busy_asked_at = 5.0, -math.inf
    assert [await busy.tick() for _ in range(5)] == [5, SLOTS, SLOTS, SLOTS, 0]
    await busy.queue(1)
    assert await busy.tick() == 0, "it asks rarely again"


async def test_who_has_no_slot_takes_few_of_what_has_waited_for_long(busy: Busy) -> None:
    await busy.queue(20)
    busy.floor._busy_age_seconds, busy.floor._busy_asked_at = 5.0, -math.inf
    for _ in range(SLOTS):
        busy.slots.take()
    assert [await busy.tick() for _ in range(3)] == [5, 0, 0]


async def test_who_has_no_slot_to_catch_up_with_does_so_later(busy: Busy) -> None:
    await busy.queue(1)
    for _ in range(SLOTS):
        busy.slots.take()
    busy.floor.catch_up()
    assert await busy.tick() == 0
    for _ in range(SLOTS):
        busy.slots.give()
    assert await busy.tick() == 1


async def test_who_is_told_to_while_it_asks_asks_again(busy: Busy, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it is answered then may be from before the pause was over."""
    ask = busy.claims.claim_next

    async def too_early(count: int, *, older_than_seconds: float) -> list[Claim]:
        found = await ask(count, older_than_seconds=older_than_seconds)
        if not busy.started:
            await busy.queue(1)
            busy.floor.catch_up()
        return found

    monkeypatch.setattr(busy.claims, "claim_next", too_early)
    busy.floor.catch_up()
    assert [await busy.tick() for _ in range(2)] == [0, 1]
