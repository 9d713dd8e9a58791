"""Fallback polling: while the broker delivers nothing, tasks are claimed from Postgres directly."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from grns.model.outcome import Claim
from grns.telemetry.signal import Emit
from grns.telemetry.task_signals import TasksPolled
from grns.worker.executor import Claimer
from grns.worker.slots import Slots

_FEW = 5
_WHILE_FAILING_SECONDS = 0.25
_MOST_AT_ONCE = 200


class ClaimSource(Protocol):
    """Claims queued tasks without their commands."""

    async def claim_next(self, count: int, *, older_than_seconds: float | None) -> list[Claim]:
        """Claim up to `count` tasks that have been queued for a while, most urgent first.

        None: only those that only some agents may run.
        """


class Poller:
    """Polls Postgres for tasks: often while the broker fails, rarely while it delivers."""

    def __init__(
        self,
        *,
        claims: ClaimSource,
        claimer: Claimer,
        slots: Slots,
        start: Callable[[Claim], None],
        start_urgent: Callable[[Claim], None] | None = None,
        last_delivery_at: Callable[[], float],
        is_broker_failing: Callable[[], bool],
        after_seconds: float,
        longest_pause_seconds: float,
        busy_age_seconds: float,
        emit: Emit,
        is_bounded: bool = False,
    ) -> None:
        self._claims = claims
        self._claimer = claimer
        self._slots = slots
        self._start = start
        self._start_urgent = start_urgent or start  # runs it although all slots are taken
        self._last_delivery_at = last_delivery_at
        self._is_broker_failing = is_broker_failing
        self._after_seconds = after_seconds
        self._longest_pause_seconds = longest_pause_seconds
        self._busy_age_seconds = busy_age_seconds
        self._emit = emit
        self._is_bounded = is_bounded  # an agent never has more tasks than it may
        self._pause = after_seconds
        self._busy_asked_at = time.monotonic()
        # True where Postgres had as many tasks as there were slots: there may be more.
        self.is_hungry = False
        self._is_behind = False
        self._has_old = False
        self._has_routed = False
        self._due_at = 0.0

    def catch_up(self) -> None:
        """Ask until Postgres has nothing more, whatever is delivered: commands may be missing for it."""
        self._is_behind = True

    @property
    def is_waiting_for_slot(self) -> bool:
        """Whether there may be tasks in Postgres that a free slot should ask for."""
        return self.is_hungry or self._has_routed

    def expect_routed(self) -> None:
        """Ask for tasks that only some agents may run: no command tells of them."""
        self._has_routed = True

    async def tick(self) -> float:
        """Claim what fits, and say when to ask again."""
        if self._slots.is_held:  # nor the few that need not wait for a slot
            return _WHILE_FAILING_SECONDS
        if self._has_routed and (free := self._slots.free) > 0:
            self._has_routed = False
            # Who was told of one meanwhile may have looked too early.
            found = await self._claim(free, older_than_seconds=None)
            self._has_routed |= found >= min(free, _MOST_AT_ONCE)
            # However often it looks for these, the rest has its time.
            left = self._due_at - time.monotonic()
            if left > 0 and not self._is_behind and not self._is_broker_failing():
                return min(left, self._after_seconds / 8)
        pause = await self._poll()
        self._due_at = time.monotonic() + pause
        return pause

    async def _poll(self) -> float:
        if self._is_broker_failing():
            found = await self._fill(older_than_seconds=0.0)
            return 0.0 if found and self._slots.free > 0 else _WHILE_FAILING_SECONDS
        if self._is_behind:
            return await self._tick_while_behind()
        silence = time.monotonic() - self._last_delivery_at()
        if silence < self._after_seconds:
            return await self._tick_while_busy(silence)
        found = await self._fill(older_than_seconds=self._after_seconds)
        if found:
            self._pause = self._after_seconds / 8
            return 0.0 if self._slots.free > 0 else self._pause
        self._pause = min(max(self._pause, self._after_seconds / 8) * 2, self._longest_pause_seconds)
        return self._pause

    async def _fill(self, *, older_than_seconds: float) -> int:
        free = self._slots.free
        found = await self._claim(free, older_than_seconds=older_than_seconds)
        self.is_hungry = found >= min(free, _MOST_AT_ONCE)
        return found

    async def _tick_while_behind(self) -> float:
        self._is_behind = False
        found = await self._fill(older_than_seconds=0.0)
        # Who was asked to catch up meanwhile may have looked too early.
        self._is_behind |= self.is_hungry
        return 0.0 if found and self._slots.free > 0 else self._after_seconds / 8

    async def _tick_while_busy(self, silence: float) -> float:
        self.is_hungry = False
        self._pause = self._after_seconds / 8
        is_due, free = time.monotonic() - self._busy_asked_at > self._longest_pause_seconds, self._slots.free
        if is_due or (self._has_old and free > 0):
            self._busy_asked_at = time.monotonic()
            # A worker that never has a free slot must not pass over what no command tells it of. A worker
            # that has some asks again: many commands may be lost while others are delivered.
            most = max(_FEW, free) if is_due else free
            is_urgent = is_due and not self._is_bounded
            found = await self._claim(most, older_than_seconds=self._busy_age_seconds, is_urgent=is_urgent)
            self._has_old = free > 0 and found >= min(most, _MOST_AT_ONCE)
        if self._has_old:
            return 0.0 if self._slots.free > 0 else self._after_seconds / 8
        return min(self._after_seconds - silence, self._longest_pause_seconds)

    async def _claim(self, most: int, *, older_than_seconds: float | None, is_urgent: bool = False) -> int:
        taken = 0
        while taken < min(most, _MOST_AT_ONCE) and (is_urgent or self._slots.free > 0):
            self._slots.take()
            taken += 1
        if not taken:
            return 0
        claims: list[Claim] = []
        began_ns = time.time_ns()
        try:
            claims = await self._claims.claim_next(taken, older_than_seconds=older_than_seconds)
        finally:
            for _ in range(taken - len(claims)):
                self._slots.give()
        for claim in claims:
            self._claimer.note_claim(claim, "poll", began_ns)
            (self._start_urgent if is_urgent else self._start)(claim)
        if claims:
            self._emit(TasksPolled(len(claims)))
        return len(claims)
