"""Agents over HTTP that lie: what their tokens say of others, and what they could guess."""

from __future__ import annotations

import random

import pytest

from grns import ticket
from grns.store import agent
from grns.store.claim import Claimant
from tests.doors.test_api_agent import QUEUE, claimed
from tests.doors.test_api_kit import OURS, THEIRS, Door, good
from tests.harness import submit
from tests.test_store_kit import fetch

pytest_plugins = ["tests.doors.test_api_kit", "tests.test_store_kit"]

_WORDS = 4000


@pytest.mark.parametrize("wait_seconds", [0, 20])
async def test_no_token_can_be_told_from_what_was_random_before(door: Door, wait_seconds: float) -> None:
    """Traces, ids of tasks and earlier tokens give away the state of Python's own generator."""
    await submit(door.database)
    random.seed(17)
    words = [random.getrandbits(32) for _ in range(_WORDS)]
    guessed = {
        "".join(f"{word:08x}" for word in reversed(words[place : place + 4])) for place in range(_WORDS)
    }
    random.seed(17)
    async with door.visitor() as visitor:
        lease_id = ticket.read((await claimed(visitor, wait_seconds=wait_seconds))["token"]).lease_id
    # All but the six bits that say which version it is.
    assert not any(_without_version(one) == _without_version(lease_id.hex) for one in guessed if one)


def _without_version(digits: str) -> str:
    return digits[:12] + digits[13:16] + digits[17:]


@pytest.mark.parametrize("how", ["renew", "release"])
async def test_an_agent_speaks_for_none_of_another_workspace(door: Door, how: str) -> None:
    """Its token is its own, and names somebody else's worker."""
    who = Claimant("worker-theirs", THEIRS, "worker", {"noop": 3}, 15.0)
    await agent.register(door.database, who, concurrency=4, version="1")
    await fetch(door.database, "update grns.agents set last_seen_at = now() - interval '1 h', running = 3")
    (before,) = await fetch(door.database, "select * from grns.agents where workspace = $1", THEIRS)
    await submit(door.database, workspace=OURS)
    key = await door.key("work")
    async with door.visitor(key) as visitor:
        shown = ticket.read((await claimed(visitor))["token"])
        forged = shown.model_copy(update={"agent_id": who.agent_id}).reveal()
        good(await visitor.post(f"{QUEUE}/{how}", json={"token": forged}))
    (after,) = await fetch(door.database, "select * from grns.agents where workspace = $1", THEIRS)
    assert dict(after) == dict(before)
