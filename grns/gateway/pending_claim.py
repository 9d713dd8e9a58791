"""A request that waits for a task."""

from __future__ import annotations

import asyncio

from grns.model.outcome import Claim
from grns.worker.claims import Claimant, Claims
from grns.worker.executor import Claimer


class PendingClaim:
    """An agent that waits: who it is, and what claims in its name."""

    def __init__(self, claimant: Claimant, claims: Claims, claimer: Claimer) -> None:
        self.claimant = claimant
        self.claims = claims
        self.claimer = claimer
        self.given: asyncio.Future[Claim] = asyncio.get_running_loop().create_future()
        self._idle = asyncio.Event()
        self._idle.set()
        self._is_leaving = False
        self.is_resting = False  # its agent has no room: its slot is taken
        self.looks = claimant.agent is not None  # for what only some agents may run

    @property
    def is_free(self) -> bool:
        """Say whether it waits on, and nothing is being claimed for it."""
        is_idle = self._idle.is_set() and not self.is_resting
        return is_idle and not self.given.done() and not self._is_leaving

    @property
    def life(self) -> tuple[str | None, str]:
        """What has room for tasks, or none: a life of an agent."""
        return self.claimant.agent, self.claimant.agent_id

    def serves(self, task_type: str | None) -> bool:
        """Say whether it takes tasks of this type; None is any."""
        return task_type is None or task_type in self.claimant.handled

    def hold(self) -> None:
        """Keep others from claiming for it."""
        self._idle.clear()

    def let_go(self, claim: Claim | None = None) -> None:
        """Give it what was claimed, or have it wait on."""
        if claim is not None:
            self.given.set_result(claim)
        self._idle.set()

    async def end(self) -> None:
        """Have nothing more claimed for it; returns once nothing is."""
        self._is_leaving = True
        await self._idle.wait()
