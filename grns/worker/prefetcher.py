"""Commands that were delivered and wait for a slot, the most urgent first.

How much is fetched ahead depends on how long tasks take. While they are short, commands are fetched ahead, so
that no slot waits for the network. While they are long, only what can start now is fetched: a command that
waits here could run on another worker. While tasks are very short, they are claimed ahead, too: as many as
there are slots, so that handlers run while Postgres claims. One that waits longer than a second is released.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import Any

from grns.model.outcome import Claim
from grns.nats.consumer import Consumer
from grns.nats.delivery import Delivery
from grns.worker.leases import LeaseManager
from grns.worker.slots import Slots

_SHORT_SECONDS = 0.2
_VERY_SHORT_SECONDS = 0.05
_LONGEST_WAIT_SECONDS = 1.0  # of a task that was claimed ahead
_NO_AHEAD_SECONDS = 30.0  # after one waited for longer
_WEIGHT = 0.1
_KEEP_AFTER_SECONDS = 1.0
# Times the slots: what runs, what is being ended, as `Slots` lends, and what is claimed ahead; and with that
# what is fetched ahead.
_AT_ONCE = 3
_AHEAD = 4


@dataclass(slots=True)
class Prefetched:
    """A delivery that waits for a slot."""

    buffer: PriorityBuffer
    delivery: Delivery
    since: float
    kept: ExitStack | None = None


@dataclass(slots=True)
class PriorityBuffer:
    """One priority subject of the pool: its consumer, what waits, and how many deliveries are held."""

    priority: int
    consumer: Consumer | None = None
    waiting: deque[Prefetched] = field(default_factory=deque)
    held: int = 0
    depth: int = -1


class Prefetcher:
    """Claims the tasks of delivered commands, many at a time, as slots get free.

    `claim` settles deliveries and starts what it claims; `claim_hinted` does so with ids of tasks; `start`
    runs a claim in the slot taken for it, and `release` gives one back.
    """

    def __init__(
        self,
        *,
        slots: Slots,
        leases: LeaseManager,
        claim: Callable[[Sequence[Delivery], Callable[[Claim], None]], Awaitable[None]],
        claim_hinted: Callable[[Sequence[str], Callable[[Claim], None]], Awaitable[None]],
        start: Callable[[Claim], None],
        release: Callable[[Claim, str], None],
        batch_limit: int,
    ) -> None:
        self._slots = slots
        self._leases = leases
        self._claim = claim
        self._claim_hinted = claim_hinted
        self._hinted: deque[str] = deque(maxlen=batch_limit)
        self._start = start
        self._release = release
        self._claimed: deque[tuple[Claim, float]] = deque()  # and since when they wait for a handler to end
        self._batch_limit = batch_limit
        self._buffers: list[PriorityBuffer] = []  # most urgent first
        self._running: set[asyncio.Task[None]] = set()
        self._claims = 0  # under way
        self._mean_seconds = 2 * _SHORT_SECONDS
        self._no_ahead_until = 0.0
        self._is_held = False
        self._is_closed = False
        self.last_delivery_at = time.monotonic()
        slots.on_free.append(self._pump)

    def buffer(self, priority: int) -> PriorityBuffer:
        """Add a buffer; its consumer is set when it runs."""
        buffer = PriorityBuffer(priority)
        self._buffers.append(buffer)
        self._buffers.sort(key=attrgetter("priority"))
        return buffer

    def receive(self, buffer: PriorityBuffer, delivery: Delivery) -> None:
        """Take a delivery in: start it, let it wait, or give it back at once."""
        self.last_delivery_at = time.monotonic()
        buffer.held += 1
        buffer.waiting.append(Prefetched(buffer, delivery, self.last_delivery_at))
        self._pump()
        is_idle = not self._claims and not self._is_eager
        if (self._is_closed or is_idle) and (least := self._least_urgent()) is not None:
            self._give_back(least.waiting.pop())
            self._fetch()  # no more than can be held: what was given back would come again at once

    def hint(self, task_id: str) -> None:
        """Claim a task that was submitted just now, if a slot is free and no command waits for one."""
        if not self._is_held and self._slots.free > 0 and self._most_urgent() is None:
            self._hinted.append(task_id)
            self._pump()

    @property
    def initial_depth(self) -> int:
        """How many deliveries a buffer fetches at first."""
        return self._slots.size

    @property
    def running(self) -> set[asyncio.Task[None]]:
        """The claims and answers to the broker that are under way."""
        return self._running

    @property
    def waiting(self) -> Iterator[Prefetched]:
        """What waits for a slot, most urgent first."""
        return chain.from_iterable(buffer.waiting for buffer in self._buffers)

    def keep_waiting(self) -> None:
        """See to it that the broker does not deliver again what has been waiting for a while.

        What was claimed ahead and has been waiting is released: handlers take longer than was expected.
        """
        if self._release_claimed("no_slot", time.monotonic() - _LONGEST_WAIT_SECONDS):
            # What runs now is long: nothing more waits here for it.
            self._mean_seconds, self._slots.ahead = 2 * _SHORT_SECONDS, 0
            self._no_ahead_until = time.monotonic() + _NO_AHEAD_SECONDS
            self._give_back_waiting()
            self._fetch()
        latest = time.monotonic() - _KEEP_AFTER_SECONDS
        tokens = {waiting.delivery.token for waiting in self.waiting if waiting.kept is not None}
        for waiting in self.waiting:
            is_room = self._leases.free_slots > _AT_ONCE * self._slots.size
            is_kept = waiting.delivery.token in tokens  # by another envelope of its message
            if not is_kept and waiting.since < latest and is_room:
                tokens.add(waiting.delivery.token)
                waiting.kept = ExitStack()
                waiting.kept.enter_context(self._leases.delivery(waiting.delivery.token))

    def hold(self) -> None:
        """Start nothing more. What waits is kept while the broker would only bring it here again."""
        self._is_held = True
        self._release_claimed("shutdown", math.inf)

    def close(self) -> None:
        """Start nothing more, and give back what waits."""
        self.hold()
        self._is_closed = True
        self._give_back_waiting()

    def start(self, claim: Claim) -> None:
        """Run a claim for which a slot is taken, as soon as less handlers run than there are slots."""
        if self._is_held:
            self._release(claim, "shutdown")
        elif self._slots.running < self._slots.size:
            self._start(claim)
        else:
            self._claimed.append((claim, time.monotonic()))

    def note_run(self, seconds: float) -> None:
        """Take the duration of one run into the mean."""
        self._mean_seconds += _WEIGHT * (seconds - self._mean_seconds)
        is_ahead = self._mean_seconds < _VERY_SHORT_SECONDS and time.monotonic() > self._no_ahead_until
        self._slots.ahead = self._slots.size if is_ahead else 0

    @property
    def _is_eager(self) -> bool:
        return self._mean_seconds < _SHORT_SECONDS

    def _most_urgent(self) -> PriorityBuffer | None:
        for buffer in self._buffers:
            if buffer.waiting:
                return buffer
        return None

    def _least_urgent(self) -> PriorityBuffer | None:
        return next((buffer for buffer in reversed(self._buffers) if buffer.waiting), None)

    def _pump(self) -> None:
        """Start what is claimed, and begin to claim if something waits and a slot is free."""
        while self._claimed and self._slots.running < self._slots.size:
            self._start(self._claimed.popleft()[0])
        has_work = self._most_urgent() is not None or self._hinted
        if has_work and self._slots.free_ahead > 0 and (not self._claims or self._may_claim_beside):
            self._claims += 1
            self._spawn(self._claim_waiting())
        self._fetch()

    @property
    def _may_claim_beside(self) -> bool:
        """Say whether a second claim may go beside the first: a large one."""
        least = min(self._batch_limit, self._slots.size) // 2
        is_room = 0 < least <= self._slots.free_ahead
        return self._claims == 1 and is_room and sum(len(one.waiting) for one in self._buffers) >= least

    async def _claim_waiting(self) -> None:
        """Claim until no slot is free; then, while tasks are long, give back what waits.

        Not sooner: the first commands of a message may be refused, and then those behind them fit.
        """
        try:
            while True:
                if batch := self._take():
                    await self._claim_batch(batch)
                    # Very short tasks end now: the next statement claims for their slots.
                    await asyncio.sleep(0)
                elif task_ids := self._take_hinted():
                    await self._in_slots(len(task_ids), partial(self._claim_hinted, task_ids))
                else:
                    break
        finally:
            self._claims -= 1
        if not self._claims and not self._is_eager:
            self._give_back_waiting()
        self._fetch()

    def _take(self) -> list[Prefetched]:
        """Take what fits into the free slots, the most urgent first."""
        batch: list[Prefetched] = []
        room = 0 if self._is_held else min(self._batch_limit, self._slots.free_ahead)
        for buffer in self._buffers:
            while len(batch) < room and buffer.waiting:
                waiting = buffer.waiting.popleft()
                if waiting.kept is not None:
                    waiting.kept.close()
                batch.append(waiting)
        self._slots.take(len(batch))
        return batch

    def _take_hinted(self) -> list[str]:
        """Take the hinted tasks that fit into the free slots, and forget the others: their commands come."""
        task_ids: list[str] = []
        while self._hinted and not self._is_held and self._slots.try_take():
            task_ids.append(self._hinted.popleft())
        self._hinted.clear()
        return task_ids

    async def _claim_batch(self, batch: Sequence[Prefetched]) -> None:
        try:
            await self._in_slots(len(batch), partial(self._claim, [waiting.delivery for waiting in batch]))
        finally:
            for buffer in self._buffers:
                self._end(buffer, sum(waiting.buffer is buffer for waiting in batch))

    async def _in_slots(
        self, slots: int, claim: Callable[[Callable[[Claim], None]], Awaitable[None]]
    ) -> None:
        """Claim into slots that are taken, and give back those that no claim has started in."""

        def start(claim: Claim) -> None:
            nonlocal slots
            slots -= 1
            self.start(claim)

        try:
            await claim(start)
        finally:
            for _ in range(slots):
                self._slots.give()

    def _release_claimed(self, reason: str, since: float) -> int:
        """Release what was claimed ahead and has been waiting since then; return how many tasks that was."""
        count = 0
        while self._claimed and self._claimed[0][1] < since:
            self._release(self._claimed.popleft()[0], reason)
            count += 1
        return count

    def _fetch(self) -> None:
        """Tell each buffer how much to fetch."""
        if self._is_held:
            return
        ahead = _AHEAD * self._slots.size if self._is_eager and not self._slots.is_held else None
        for buffer in self._buffers:
            depth = buffer.held + self._slots.free if ahead is None else ahead
            if depth != buffer.depth and buffer.consumer is not None:
                buffer.depth = depth
                buffer.consumer.set_depth(depth)

    def _give_back_waiting(self) -> None:
        while (least := self._least_urgent()) is not None:
            self._give_back(least.waiting.pop())

    def _give_back(self, waiting: Prefetched) -> None:
        if waiting.kept is not None:
            waiting.kept.close()
        self._end(waiting.buffer, 1)
        self._spawn(waiting.delivery.nak())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def _end(self, buffer: PriorityBuffer, count: int) -> None:
        buffer.held -= count
        if count and buffer.consumer is not None:
            buffer.consumer.done(count)
