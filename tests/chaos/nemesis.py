"""Who does the faults: one after another as the seed says, each healed after its time."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter

from tests.chaos.faults import FAULTS, Fault, Hit
from tests.chaos.stage import Stage
from tests.chaos.strangers import AWAY, NothingDone

# So many may last at a time: with everything broken nothing is shown but that nothing works.
_MOST_AT_ONCE = 4


class Nemesis:
    """Draws faults from a seed. The same seed draws the same faults; what they meet differs."""

    def __init__(self, stage: Stage, seed: int, *, per_second: float, only: str = "") -> None:
        self._stage = stage
        self._chance = random.Random(seed)
        self._per_second = per_second
        meant = [fault for fault in FAULTS if _is_meant(fault, only, len(stage.brokers))]
        self._kinds = [fault for fault in meant if stage.disks or not fault.needs_disks]
        self._healing: set[asyncio.Task[None]] = set()
        self._servers: set[str] = set()
        self.counts: Counter[str] = Counter()

    async def run(self, until: float) -> None:
        """Do faults until a time of the monotonic clock, and heal them all."""
        weights = [fault.weight for fault in self._kinds]
        while time.monotonic() < until:
            pause = self._chance.expovariate(self._per_second) if self._per_second else 1.0
            await asyncio.sleep(min(pause, max(0.0, until - time.monotonic())))
            fault = self._chance.choices(self._kinds, weights)[0]
            # Each has its own draws: one that is left out takes them with it.
            chance = random.Random(self._chance.getrandbits(64))
            if self._per_second and len(self._healing) < _MOST_AT_ONCE and time.monotonic() < until:
                await self._do(fault, chance)
        await asyncio.gather(*self._healing)

    async def _do(self, fault: Fault, chance: random.Random) -> None:
        if fault.server is not None:
            if fault.server in self._servers:
                return
            self._servers.add(fault.server)
        began = time.time()
        try:
            hit = await fault.inject(self._stage, chance)
        except (NothingDone, *AWAY):
            self._servers.discard(fault.server or "")
            return
        self.counts[fault.name] += 1
        healing = asyncio.create_task(self._heal(fault, hit, began))
        self._healing.add(healing)
        healing.add_done_callback(self._healing.discard)

    async def _heal(self, fault: Fault, hit: Hit, began: float) -> None:
        try:
            await asyncio.sleep(hit.seconds)
            if hit.heal is not None:
                await hit.heal()
        finally:
            self._servers.discard(fault.server or "")
            self._stage.note_hit(fault.name, hit.whom, began, tasks=hit.tasks)


def _is_meant(fault: Fault, only: str, brokers: int) -> bool:
    """Say whether a fault can be done with so many brokers, and is one of those that are wanted."""
    return brokers in fault.brokers and any(part in fault.name for part in only.split(","))
