"""The accident: a worker is killed while Postgres says that it holds enough attempts."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from grns.dev.demo.stage import DemoStage
from grns.dev.demo.truth import Truth

LEAST_HELD = 10
_SETTLE_SECONDS = 0.05
_MOST_LOOKS = 20


@dataclass(frozen=True, slots=True)
class Accident:
    """Who was killed, and what it held in that moment."""

    pid: int
    held: frozenset[str]


async def strike(stage: DemoStage, truth: Truth) -> Accident | None:
    """Kill the worker that holds most; None where it does not hold enough right now.

    It is stopped first, so that it asks for nothing between the look and the kill. What it had asked for
    before is still done: what it held in the end is known once Postgres has ended its connections.
    """
    held = await truth.held()
    agent_id = max(held, key=lambda name: len(held[name]), default=None)
    if agent_id is None or len(held[agent_id]) < LEAST_HELD:
        return None
    pid = (await truth.agents())[agent_id]
    worker = stage.workers[pid]
    worker.freeze()
    try:
        if len(await _settled(truth, agent_id)) < LEAST_HELD:
            return None
        stage.kill(pid)
        await _disconnected(truth, pid)
        return Accident(pid, (await truth.held()).get(agent_id, frozenset()))
    finally:
        worker.thaw()


async def _settled(truth: Truth, agent_id: str) -> frozenset[str]:
    """Return what a stopped worker holds, once the statements that it had sent have ended."""
    before: frozenset[str] | None = None
    for _ in range(_MOST_LOOKS):
        now = (await truth.held()).get(agent_id, frozenset())
        if now == before:
            return now
        before = now
        await asyncio.sleep(_SETTLE_SECONDS)
    return frozenset()


async def _disconnected(truth: Truth, pid: int) -> None:
    """Return once Postgres serves nothing any more that a killed worker had asked for."""
    while True:
        if not await truth.connections(pid):
            return
        await asyncio.sleep(_SETTLE_SECONDS)
