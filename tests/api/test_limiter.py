"""Requests that take long: they are in the way of others of their own workspace alone."""

from __future__ import annotations

import asyncio

import pytest

from grns.api import context as context
from grns.api.context import QueryLimiter
from grns.api.route import PREFIX
from grns.errors import RateLimitedError
from grns.postgres.database import Database
from tests.support.api import OURS, THEIRS, Door, good
from tests.support.harness import eventually, submit
from tests.support.store import is_waiting_for_lock, stranger


async def test_a_workspace_has_no_more_than_its_share_of_connections(door: Door, shared_url: str) -> None:
    keys = [await door.key("read", workspace=workspace) for workspace in (OURS, THEIRS)]
    database = Database(shared_url, name="small", size=2)
    async with database.opened():
        small = Door(database)
        async with small.visitor(keys[0]) as us, small.visitor(keys[1]) as them, stranger(database) as held:
            good(await us.get(f"{PREFIX}/filters"))
            await held.execute("lock table grns.saved_filters in access exclusive mode")
            asking = [asyncio.create_task(us.get(f"{PREFIX}/filters")) for _ in range(6)]
            await eventually(lambda: is_waiting_for_lock(door.database, "grns small"))
            good(await them.get(f"{PREFIX}/counts"))
            assert not any(one.done() for one in asking)
            await held.execute("rollback")
            for answer in await asyncio.gather(*asking):
                good(answer)


async def test_a_lease_is_renewed_while_other_requests_of_its_workspace_take_long(
    door: Door, shared_url: str
) -> None:
    await submit(door.database, workspace=OURS)
    keys = [await door.key(scope) for scope in ("read", "work")]
    database = Database(shared_url, name="small", size=4)
    async with database.opened():
        small = Door(database)
        async with small.visitor(keys[0]) as reader, small.visitor(keys[1]) as worker:
            handed = good(
                await worker.post(f"{PREFIX}/queue/claim", json={"task_types": ["noop"], "wait_seconds": 0})
            )
            async with stranger(database) as held:
                await held.execute("lock table grns.saved_filters in access exclusive mode")
                asking = [asyncio.create_task(reader.get(f"{PREFIX}/filters")) for _ in range(6)]
                await eventually(lambda: is_waiting_for_lock(door.database, "grns small"))
                shown = {"token": handed["token"]}
                good(await worker.post(f"{PREFIX}/queue/renew", json=shown))
                good(await worker.post(f"{PREFIX}/queue/step", json={**shown, "name": "found", "value": 1}))
                good(await worker.post(f"{PREFIX}/queue/complete", json={**shown, "result": 1}))
                assert not any(one.done() for one in asking)
                await held.execute("rollback")
                for answer in await asyncio.gather(*asking):
                    good(answer)
        await small.context.agent_claims.close()


async def test_whose_turn_does_not_come_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "_PATIENCE_SECONDS", 0.01)
    turns = QueryLimiter(1)
    async with turns.of(OURS):
        with pytest.raises(RateLimitedError):
            async with turns.of(OURS):
                pytest.fail("there is one turn")
        async with turns.of(THEIRS):
            pass
    async with turns.of(OURS):
        pass
    assert not turns._known


async def test_workspace_with_its_most_requests_under_way_is_refused_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """M9: requests of one workspace that nobody waited for any more kept others waiting."""
    monkeypatch.setattr(context, "_MOST_OF_WORKSPACE", 2)
    turns = QueryLimiter(2)
    async with turns.of(OURS), turns.of(OURS):
        with pytest.raises(RateLimitedError, match="2 requests"):
            async with turns.of(OURS):
                pytest.fail("it has its most")
        async with turns.of(THEIRS):
            pass
    assert not turns._asking
