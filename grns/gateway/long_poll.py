"""Long polls: the HTTP workers of one agent type that wait in this process for a task.

To broker and Postgres they are one worker, whose free slots are the waiting requests: it fetches commands
from the pool's priority subjects and, while none comes, polls Postgres once for all of them. Each task is
claimed with the statements of workers, in the name of the HTTP worker that gets it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from grns.errors import GrnsError
from grns.gateway.pending_claim import PendingClaim
from grns.gateway.waiters import Waiters
from grns.model import subjects
from grns.model.outcome import Claim, Unclaimed
from grns.nats import JetStream
from grns.nats.consumer import Consumer
from grns.nats.delivery import Delivery, parts_of
from grns.postgres.database import Database
from grns.runtime.service import PeriodicLoop
from grns.telemetry.signal import Emit
from grns.telemetry.task_signals import TaskCrashed, TaskNotClaimed
from grns.worker.claims import Claimant
from grns.worker.command import ExecuteCommand
from grns.worker.executor import Claimer
from grns.worker.pause_watch import PauseWatch
from grns.worker.poller import Poller
from grns.worker.slots import Slots

_OPEN_AGAIN_SECONDS = 5.0
_UNUSED_SECONDS = 10.0
_WATCH_SECONDS = 0.5
_MOST_MISSED = 100


@dataclass(frozen=True, slots=True)
class PollIntervals:
    """How often a queue polls Postgres, see `Poller`."""

    after_seconds: float
    longest_pause_seconds: float
    busy_age_seconds: float


@dataclass(slots=True)
class _PrioritySubject:
    """One priority subject of the pool: its consumer, and how many of its deliveries are held."""

    consumer: Consumer | None = None
    held: int = 0
    depth: int = -1


class LongPollQueue:
    """Gives tasks to waiting requests; `claimer` settles what none of them may claim, and claims nothing."""

    def __init__(
        self,
        *,
        claimant: Claimant,
        claimer: Claimer,
        database: Database,
        transport: JetStream,
        pace: PollIntervals,
        emit: Emit,
    ) -> None:
        self._claimer = claimer
        self._transport = transport
        self._emit = emit
        self._slots = Slots(0)
        self._slots.on_free.append(self._fetch)
        self._waiters = Waiters(self._slots, on_routed=self._look_for_routed)
        self._who = replace(claimant, handled=self._waiters.handled)
        self._sources = [_PrioritySubject() for _ in subjects.PRIORITIES]
        self._missed: set[str] = set()
        self._last_delivery_at = time.monotonic()
        self._poller = Poller(
            claims=self,
            claimer=claimer,
            slots=self._slots,
            start=lambda _claim: None,  # its waiter has it
            last_delivery_at=lambda: self._last_delivery_at,
            is_broker_failing=self._is_broker_failing,
            after_seconds=pace.after_seconds,
            longest_pause_seconds=pace.longest_pause_seconds,
            busy_age_seconds=pace.busy_age_seconds,
            emit=emit,
        )
        self._look_at = 0.0
        self._is_failing = True
        self._poll_loop = PeriodicLoop("agent_floor", self._look, emit=emit)
        self._pause_watch = PauseWatch(
            database=database, claimant=self._who, slots=self._slots, on_resumed=self.catch_up, emit=emit
        )
        self._pause_loop = PeriodicLoop("agent_pause_watch", self._look_for_pauses, emit=emit)
        self._running: set[asyncio.Task[None]] = set()
        self._loops: list[asyncio.Task[None]] = []

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiters)

    @property
    def empty_seconds(self) -> float:
        """For how long no request has waited here."""
        return self._waiters.empty_seconds

    def open(self) -> None:
        """Begin to look for tasks, from now on and for whatever is queued already."""
        self._poller.catch_up()
        loops = (self._open_sources(), self._poll_loop.run(), self._pause_loop.run())
        self._loops = [asyncio.create_task(loop) for loop in loops]

    async def close(self) -> None:
        """Stop polling, and give back deliveries that no request has got."""
        opening, *daemons = self._loops
        opening.cancel()
        self._poll_loop.stop()
        self._pause_loop.stop()
        consumers = [source.consumer for source in self._sources if source.consumer is not None]
        await asyncio.gather(*(consumer.stop() for consumer in consumers), return_exceptions=True)
        await asyncio.wait([opening, *daemons, *self._running])

    def catch_up(self) -> None:
        """Look for tasks that no command tells of any more."""
        self._poller.catch_up()
        self._look_now()

    async def wait(
        self, pending: PendingClaim, *, seconds: float, ends: Collection[asyncio.Future[None]]
    ) -> Claim | None:
        """Wait for a task, so long at most and until one of `ends`; what is claimed by then is returned."""
        watched: set[asyncio.Future[Any]] = {pending.given, *ends}
        self._enter(pending)
        try:
            await asyncio.wait(watched, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await pending.end()
            self._leave(pending)
        return pending.given.result() if pending.given.done() else None

    # Who comes and goes

    def _enter(self, pending: PendingClaim) -> None:
        types = pending.claimant.handled.keys()
        has_missed = not self._missed.isdisjoint(types)
        if has_missed:
            self._missed -= types
            self._poller.catch_up()
        if self._waiters.enter(pending) or has_missed or self._poller.is_waiting_for_slot:
            self._look_now()
            self._pause_loop.wake()
        self._slots.give()
        self._waiters.look()

    def _leave(self, pending: PendingClaim) -> None:
        self._waiters.leave(pending)
        self._fetch()

    def _settle(self, pending: PendingClaim, claim: Claim | None) -> None:
        self._waiters.settle(pending, claim)
        self._fetch()

    # What comes from the broker

    async def _open_sources(self) -> None:
        await self._transport.wait_connected()
        routed = subjects.routed_nudge(self._who.workspace, self._who.agent_type)
        async with self._transport.watching(routed, self._receive_routed):
            await asyncio.gather(*(self._open_source(priority) for priority in subjects.PRIORITIES))
            await asyncio.Event().wait()  # until the queue is closed

    def _receive_routed(self, route: bytes) -> None:
        self._waiters.hear_of(route)

    def _look_for_routed(self) -> None:
        self._poller.expect_routed()
        self._look_now()

    async def _open_source(self, priority: int) -> None:
        source = self._sources[priority]
        subject = subjects.priority_subject(self._who.workspace, self._who.agent_type, priority)
        while source.consumer is None:
            try:
                source.consumer = await self._transport.consume(
                    subject, lambda delivery: self._receive(source, delivery), depth=0
                )
            except Exception as error:  # an operator may mend it
                self._emit(TaskCrashed(type(error).__name__, f"{subject}: {error}"[:500]))
                await asyncio.sleep(_OPEN_AGAIN_SECONDS)
        self._fetch()

    def _is_broker_failing(self) -> bool:
        return any(source.consumer is None or source.consumer.is_failing for source in self._sources)

    def _fetch(self) -> None:
        """Tell each source to fetch as much as there are who wait for it."""
        queue = 0 if self._slots.is_held else max(0, self._slots.free)
        for source in self._sources:
            depth = source.held + queue
            if source.consumer is not None and depth != source.depth:
                source.depth = depth
                source.consumer.set_depth(depth)

    def _receive(self, source: _PrioritySubject, delivery: Delivery) -> None:
        self._last_delivery_at = time.monotonic()
        source.held += 1
        self._spawn(source, self._follow_all(parts_of(delivery)))

    async def _follow_all(self, parts: Sequence[Delivery]) -> None:
        """Offer the commands of a message in turn: where one is refused, its waiter gets the next."""
        for part in parts:
            pending = self._waiters.choose()
            if pending is None:
                await part.nak()
            else:
                self._slots.take()
                self._fetch()
                await self._follow(pending, part)

    def _spawn(self, source: _PrioritySubject, work: Awaitable[None]) -> None:
        task = asyncio.create_task(self._hold(source, work))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _hold(self, source: _PrioritySubject, work: Awaitable[None]) -> None:
        """See one delivery to its end; where that breaks, the broker brings it again."""
        try:
            await work
        except Exception as error:
            self._emit(TaskCrashed(type(error).__name__, str(error)[:500]))
        finally:
            source.held -= 1
            if source.consumer is not None:
                source.consumer.done()
            self._fetch()

    async def _follow(self, pending: PendingClaim, delivery: Delivery) -> None:
        command = None
        try:
            command = await self._claimer.read(delivery)
        finally:
            if command is None:
                self._settle(pending, None)
        if command is not None:
            await self._offer(pending, command, delivery)

    async def _offer(self, pending: PendingClaim, command: ExecuteCommand, delivery: Delivery) -> None:
        """Claim a command's task for a waiter; the delivery is acknowledged once that has committed."""

        async def pass_on(answer: Unclaimed, delivery: Delivery) -> None:
            if answer.reason == "agent_full":
                self._waiters.rest(pending)
            other = self._waiters.choose(answer.task_type)
            if other is None and answer.reason == "agent_full":
                await delivery.nak()  # for another worker, or who asks next
            elif other is None:
                await self._miss(answer, delivery)
            else:
                self._slots.take()
                await self._offer(other, command, delivery)

        claim = None
        try:
            claim = await pending.claimer.claim(command, delivery, "priority", on_unfit=pass_on)
        finally:
            self._settle(pending, claim)
        if claim is not None:
            await delivery.ack()

    async def _miss(self, answer: Unclaimed, delivery: Delivery) -> None:
        """Leave a task queued that no waiting request serves: one that does will find it."""
        if answer.task_type is not None and len(self._missed) < _MOST_MISSED:
            self._missed.add(answer.task_type)
        self._emit(TaskNotClaimed(answer.id, answer.reason))
        await delivery.ack()

    # What comes from Postgres

    async def claim_next(self, count: int, *, older_than_seconds: float | None) -> list[Claim]:
        """Claim what is queued, for those who wait: where one finds nothing, none like it looks.

        Agents may find what others do not; with `older_than_seconds` None only they look, each once until
        there is news of such tasks.
        """
        chosen: list[PendingClaim] = []
        looks = older_than_seconds is None
        while len(chosen) < count and (pending := self._waiters.choose(looks=looks)) is not None:
            chosen.append(pending)
        claims: list[Claim] = []
        try:
            await self._claim_for(chosen, older_than_seconds, claims)
        except GrnsError:
            if looks:
                self._poller.expect_routed()  # with the next look
            if not claims:
                raise
        finally:
            for pending in chosen:
                if not pending.given.done():
                    pending.let_go()  # the poller gives its slot back
        self._waiters.look()
        return claims

    async def _claim_for(
        self, chosen: Sequence[PendingClaim], older_than_seconds: float | None, claims: list[Claim]
    ) -> None:
        empty: set[tuple[str | None, str | None, frozenset[str]]] = set()
        for pending in chosen:
            agent, life = pending.life
            kind = (agent, life if agent else None, frozenset(pending.claimant.handled))
            found: list[Claim] = []
            if kind not in empty:
                found = await pending.claims.claim_next(1, older_than_seconds=older_than_seconds)
            pending.looks = False
            if not found:
                empty.add(kind)
            if pending.claims.is_full:
                self._waiters.rest(pending)
            for claim in found:
                self._settle(pending, claim)
            claims += found
        if claims and older_than_seconds is not None and any(one.is_resting for one in chosen):
            self._poller.catch_up()  # fewer were found than waited, but not because there are no more

    def _look_now(self) -> None:
        self._look_at = 0.0
        self._poll_loop.wake()

    async def _look(self) -> float:
        return await self._guarded(self._look_in_time)

    async def _look_in_time(self) -> float:
        """Poll when it is time, and as soon as the broker fails: the poller's pause may be long."""
        was_failing, self._is_failing = self._is_failing, self._is_broker_failing()
        if time.monotonic() >= self._look_at or (self._is_failing and not was_failing):
            self._look_at, pause = inf, 0.0
            try:
                pause = await self._poller.tick()
            finally:
                self._look_at = min(
                    self._look_at, time.monotonic() + pause
                )  # who came meanwhile does not wait
        return max(0.0, min(self._look_at - time.monotonic(), _WATCH_SECONDS))

    async def _look_for_pauses(self) -> float:
        return await self._guarded(self._pause_watch.tick)

    async def _guarded(self, tick: Callable[[], Awaitable[float]]) -> float:
        """Tick while a request waits. A bug ends the tick, not the queue."""
        if not self._waiters:
            return _UNUSED_SECONDS
        try:
            return await tick()
        except GrnsError:
            raise
        except Exception as error:
            self._emit(TaskCrashed(type(error).__name__, str(error)[:500]))
            return _OPEN_AGAIN_SECONDS

    def note_paused(self, task_type: str) -> None:
        """Note a command whose task is paused."""
        if self._pause_watch.note(task_type):
            self._pause_loop.wake()
