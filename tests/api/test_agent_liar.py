"""Agents over HTTP that lie: what their tokens say of others, and what they could guess."""

from __future__ import annotations

import pytest

from grns.model.claim_token import SigningKey
from grns.worker import registry as agent
from grns.worker.claims import Claimant
from tests.api.test_agent import QUEUE, claimed, opened
from tests.support.api import OURS, THEIRS, Door, good, problem_of
from tests.support.harness import submit
from tests.support.store import fetch


@pytest.mark.parametrize("how", ["renew", "release"])
async def test_an_agent_speaks_for_none_of_another_workspace(door: Door, how: str) -> None:
    """M3: its token is its own, and names somebody else's worker."""
    who = Claimant("worker-theirs", THEIRS, "worker", {"noop": 3}, 15.0)
    await agent.register(door.database, who, concurrency=4, version="1")
    await fetch(door.database, "update grns.workers set last_seen_at = now() - interval '1 h', running = 3")
    (before,) = await fetch(door.database, "select * from grns.workers where workspace = $1", THEIRS)
    await submit(door.database, workspace=OURS)
    key = await door.key("work")
    async with door.visitor(key) as visitor:
        token = (await claimed(visitor))["token"]
        shown = opened(token).model_copy(update={"agent_id": who.agent_id})
        forged = shown.reveal(SigningKey(1, bytes(32)))
        assert problem_of(await visitor.post(f"{QUEUE}/{how}", json={"token": forged}), 400) == "bad_token"
        signed = shown.reveal(await door.context.token_keys.latest())
        good(await visitor.post(f"{QUEUE}/{how}", json={"token": signed}))
    (after,) = await fetch(door.database, "select * from grns.workers where workspace = $1", THEIRS)
    assert dict(after) == dict(before)
