"""Senders of webhooks that are killed, frozen and cut off: every event comes, also what nobody noted."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter

import pytest

from grns.postgres.database import Database
from tests.faults.test_operations import gone
from tests.support.harness import START_SECONDS, Fleet, eventually, is_stopped, submit_many
from tests.support.webhooks import HERE, Receiver, deliveries, fall_due, made, settle

pytestmark = pytest.mark.timeout(240)

SENDER = {
    "GRNS_WEBHOOK_ALLOW_HTTP": "true",
    "GRNS_WEBHOOK_ALLOW_NETWORKS": HERE,
    "GRNS_WEBHOOK_TIMEOUT_SECONDS": "5",
    "GRNS_WEBHOOK_WINDOW": "4",
}
# Before and after each statement; between an answer and its being noted is before the last one.
MOMENTS = (
    "make_deliveries.asked",
    "make_deliveries.answered",
    "claim_deliveries.answered",
    "finish_delivery.asked",
    "finish_delivery.answered",
)


async def _all_delivered(database: Database, webhook_id: str, count: int) -> None:
    async def look() -> bool:
        rows = await deliveries(database, webhook_id)
        return len(rows) == count and all(row["state"] == "delivered" for row in rows)

    await eventually(look, within_seconds=START_SECONDS)


async def test_killed_at_each_moment(fleet: Fleet, database: Database) -> None:
    """A moment may come again before all is sent: what was under way then is sent once more, and no more."""
    async with Receiver().listening() as server:
        _, webhook_id = await made(database, server.url, "evt.task.queued")
        ids = await submit_many(database, 40)
        await settle(database)
        for moment in MOMENTS:
            await gone(fleet.start("daemon", "webhooks", **SENDER, GRNS_FAILPOINTS=f"{moment}=kill#1"))
            await fall_due(database, webhook_id)
        assert any(row["state"] == "pending" for row in await deliveries(database, webhook_id))
        fleet.start("daemon", "webhooks", **SENDER)
        await _all_delivered(database, webhook_id, 40)
    came = Counter(request.document["payload"]["task_id"] for request in server.requests)
    assert set(came) == set(ids)
    known = {str(row["message_id"]) for row in await deliveries(database, webhook_id)}
    assert {request.id for request in server.requests} == known
    assert sum(came.values()) - 40 <= len(MOMENTS) * 4


async def test_cut_off_before_and_after_each_statement(fleet: Fleet, database: Database) -> None:
    """Whoever does not hear whether it was noted asks again, and what has counted counts once."""
    async with Receiver().listening() as server:
        _, webhook_id = await made(database, server.url, "evt.task.queued")
        ids = await submit_many(database, 60)
        await settle(database)
        points = ",".join(
            f"{name}.{when}=drop@0.1"
            for name in ("make_deliveries", "claim_deliveries", "finish_delivery")
            for when in ("asked", "answered")
        )
        process = fleet.start("daemon", "webhooks", **SENDER, GRNS_FAILPOINTS=points)

        async def look() -> bool:
            assert process.poll() is None, fleet.log_of(process)
            await fall_due(database, webhook_id)  # what was taken unheard
            rows = await deliveries(database, webhook_id)
            return len(rows) == 60 and all(row["state"] == "delivered" for row in rows)

        await eventually(look, within_seconds=START_SECONDS, every=1.0)
    assert {request.document["payload"]["task_id"] for request in server.requests} == set(ids)


async def test_frozen_with_answers_in_hand_and_woken(fleet: Fleet, database: Database) -> None:
    """Another one has sent it meanwhile; what the first one comes to note late counts for nothing."""
    async with Receiver().listening() as server:
        _, webhook_id = await made(database, server.url, "evt.task.queued")
        await submit_many(database, 10)
        await settle(database)
        victim = fleet.start("daemon", "webhooks", **SENDER, GRNS_FAILPOINTS="finish_delivery.asked=stop#1")

        async def is_frozen() -> bool:
            return is_stopped(victim.pid)

        await eventually(is_frozen, within_seconds=START_SECONDS)
        await fall_due(database, webhook_id)
        fleet.start("daemon", "webhooks", **SENDER)
        await _all_delivered(database, webhook_id, 10)
        before = await deliveries(database, webhook_id)
        victim.send_signal(signal.SIGCONT)
        await asyncio.to_thread(fleet.end, [victim])
        assert victim.returncode == 0, fleet.log_of(victim)
        assert await deliveries(database, webhook_id) == before
