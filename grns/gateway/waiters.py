"""The requests that wait for tasks in one queue."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from grns.gateway.pending_claim import PendingClaim
from grns.model.outcome import Claim
from grns.worker.slots import Slots

_REST_SECONDS = 1.0


class Waiters:
    """Who waits, the longest first. Each has a slot, unless something is claimed for it, or it rests.

    The waiters of an agent that has no room rest for a moment: what comes is for others.
    """

    def __init__(self, slots: Slots, *, on_routed: Callable[[], None]) -> None:
        self._slots = slots
        self._on_routed = on_routed  # a waiter is to look for what only some agents may run
        self._pending: list[PendingClaim] = []
        self._left_at = time.monotonic()
        self.handled: dict[str, int | None] = {}
        """Which task types are waited for, or were."""

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def empty_seconds(self) -> float:
        """For how long no request has waited here."""
        return 0.0 if self._pending else time.monotonic() - self._left_at

    def enter(self, pending: PendingClaim) -> bool:
        """Let one wait; return whether none has waited for tasks of its types."""
        is_news = not self._pending or not pending.claimant.handled.keys() <= self.handled.keys()
        self._pending.append(pending)
        self._note_types()
        return is_news

    def leave(self, pending: PendingClaim) -> None:
        """Let one go that has got nothing."""
        if not pending.given.done():
            self._remove(pending)
            self._slots.take()

    def choose(self, task_type: str | None = None, *, looks: bool = False) -> PendingClaim | None:
        """Hold who has waited the longest for such a task, or looks for one that only some agents may run."""
        for pending in self._pending:
            if pending.is_free and pending.serves(task_type) and (pending.looks or not looks):
                pending.hold()
                return pending
        return None

    def settle(self, pending: PendingClaim, claim: Claim | None) -> None:
        """Give a waiter, whose slot is taken, what was claimed for it, or let it go on waiting."""
        if claim is None:
            pending.let_go()
            self._slots.give()
            self.look()
        else:
            self._remove(pending)
            pending.let_go(claim)

    def rest(self, full: PendingClaim) -> None:
        """Let all rest that wait for the same life of an agent: it has no room, or is told to end."""
        waiters = [one for one in self._pending if one.life == full.life and not one.is_resting]
        for pending in waiters:
            pending.is_resting = True
            self._slots.take()
        if waiters:
            asyncio.get_running_loop().call_later(_REST_SECONDS, self._rouse, waiters)

    def hear_of(self, route: bytes) -> None:
        """Let those look whose agent may be able to run tasks of a route."""
        for pending in self._pending:
            agent = pending.claimant.agent
            if agent is not None and (not route.startswith(b"a:") or route[2:] == agent.encode()):
                pending.looks = True
        self.look()

    def look(self) -> None:
        """Call `on_routed` if a waiter is to look, and can."""
        if any(pending.looks and pending.is_free for pending in self._pending):
            self._on_routed()

    def _rouse(self, waiters: Sequence[PendingClaim]) -> None:
        for pending in waiters:
            if pending.is_resting:
                pending.looks = True
                self._wake(pending)
        self.look()

    def _wake(self, pending: PendingClaim) -> None:
        if pending.is_resting:
            pending.is_resting = False
            self._slots.give()

    def _remove(self, pending: PendingClaim) -> None:
        self._pending.remove(pending)
        self._wake(pending)
        self._note_types()
        self._left_at = time.monotonic()

    def _note_types(self) -> None:
        if self._pending:
            self.handled.clear()
        for pending in self._pending:
            self.handled.update(pending.claimant.handled)
