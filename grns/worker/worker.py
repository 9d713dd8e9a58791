"""A worker: takes commands in, runs a pool's handlers, and ends without losing anything."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import structlog

from grns.errors import GrnsError, UnavailableError
from grns.model import subjects
from grns.model.outcome import Claim
from grns.nats import JetStream
from grns.nats.consumer import Consumer
from grns.nats.delivery import Delivery
from grns.nats.follow_nudges import FollowNudges
from grns.postgres.database import Database
from grns.runtime.service import PeriodicLoop, wait_for_postgres
from grns.telemetry import current
from grns.telemetry.service_signals import ServiceStarted, ServiceStopped
from grns.telemetry.signal import Emit
from grns.telemetry.task_signals import TaskCrashed
from grns.worker import registry as agent
from grns.worker.claims import Claimant
from grns.worker.executor import Executor
from grns.worker.handler_runner import HandlerRunner
from grns.worker.heartbeat_process import HeartbeatProcess
from grns.worker.leases import LeaseManager
from grns.worker.order_watch import OrderWatch
from grns.worker.output import OutputPublisher
from grns.worker.pause_watch import PauseWatch
from grns.worker.poller import Poller
from grns.worker.prefetcher import Prefetcher
from grns.worker.progress import ProgressStore
from grns.worker.router import CommandRouter
from grns.worker.slots import Slots

_log = structlog.get_logger()

_WATCH_SECONDS = 0.2
_LAST_WORDS_SECONDS = 5.0
_SHARED_SUBJECT_DEPTH = 64
_OPEN_AGAIN_SECONDS = 5.0
_CONSUMERS = len(subjects.PRIORITIES) + 1
_NO_HEARTBEAT = "heartbeat"
# The queue group of hints: each goes to one worker of the pool.
_HINTED = "workers"
_TASK_ID = re.compile(rb"[A-Za-z0-9_-]{1,64}")


class Worker:
    """One life of a worker process: one pool, a number of slots, until stopped."""

    def __init__(
        self,
        *,
        claimant: Claimant,
        database: Database,
        transport: JetStream,
        heartbeat: HeartbeatProcess,
        leases: LeaseManager,
        handlers: HandlerRunner,
        executor: Executor,
        slots: Slots,
        progress: ProgressStore,
        output: OutputPublisher,
        make_poller: Callable[[Worker], Poller],
        make_router: Callable[[Worker], CommandRouter],
        make_pause_watch: Callable[[Worker], PauseWatch],
        make_order_watch: Callable[[Worker], OrderWatch],
        declare: Callable[[], Awaitable[None]],
        claim_batch: int,
        grace_seconds: float,
        version: str,
        emit: Emit,
    ) -> None:
        self._claimant = claimant
        self._database = database
        self._transport = transport
        self._heartbeat = heartbeat
        self._leases = leases
        self._handlers = handlers
        self._executor = executor
        self._slots = slots
        self._declare = declare
        self._grace_seconds = grace_seconds
        self._version = version
        self._emit = emit
        self.prefetcher = Prefetcher(
            slots=slots,
            leases=leases,
            claim=self._claim,
            claim_hinted=self._claim_hinted,
            start=self.start,
            release=self._release,
            batch_limit=claim_batch,
        )
        self._poller = make_poller(self)
        self._poll_loop = PeriodicLoop("poller", self._poller.tick, emit=emit)
        slots.on_free.append(self._feed)
        self._follow_nudges = FollowNudges(transport)
        self._router = make_router(self)
        self._pause_watch = make_pause_watch(self)
        self._pause_loop = PeriodicLoop("pause_watch", self._pause_watch.tick, emit=emit)
        self._order_loop = PeriodicLoop("order_watch", make_order_watch(self).tick, emit=emit)
        executor.on_paused.append(self._note_paused)
        self._progress_loop = PeriodicLoop("progress", progress.tick, emit=emit)
        self._output = output
        self._consumers: list[Consumer] = []
        self._shared_consumer: Consumer | None = None
        self._running: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()
        self._is_registering = False
        self.ready = asyncio.Event()
        """Set once it takes tasks."""

    async def run(self) -> None:
        """Work until stopped, then give back what does not end within the grace."""
        try:
            await self._handlers.start()
            await self._work()
        finally:
            await self._handlers.stop()

    async def _work(self) -> None:
        if not await self._has_begun():
            return
        opening = asyncio.create_task(self._guard(self._open()))
        self._emit(ServiceStarted("worker"))
        poller = asyncio.create_task(self._poll_loop.run())
        watches = [
            asyncio.create_task(watch)
            for watch in (
                self._watch(),
                self._watch_heartbeat(),
                self._pause_loop.run(),
                self._order_loop.run(),
                self._progress_loop.run(),
                self._output.run(),
            )
        ]
        # None of these ends by itself: without one, a worker would look alive and not be.
        await self._until_stopped(poller, *watches)
        _log.info(
            "worker_stopping",
            running=self._slots.running,
            grace_seconds=self._grace_seconds,
            detail="a second signal exits at once",
        )
        opening.cancel()
        await self._close(poller)
        for watch in watches:
            watch.cancel()
        self._heartbeat.stop()
        self._emit(ServiceStopped("worker"))
        for loop in (poller, *watches):
            if loop.done() and not loop.cancelled():
                loop.result()  # a bug ends the process, once its work has been given back

    async def _has_begun(self) -> bool:
        """Wait for Postgres, and tell it what there is; False if the worker is stopped meanwhile."""
        beginning = asyncio.create_task(self._begin())
        await self._until_stopped(beginning)
        if beginning.done() and beginning.exception() is None:
            return True
        beginning.cancel()
        await asyncio.wait({beginning})
        if self._is_registering:
            with suppress(TimeoutError):  # Postgres may be away, for as long as it likes
                async with asyncio.timeout(_LAST_WORDS_SECONDS):
                    await self._sign_off()
        self._heartbeat.stop()
        if not beginning.cancelled():
            beginning.result()
        return False

    async def _begin(self) -> None:
        await wait_for_postgres(self._heartbeat.start, emit=self._emit)
        await wait_for_postgres(self._register, emit=self._emit)
        await wait_for_postgres(self._declare, emit=self._emit)

    async def _register(self) -> None:
        self._is_registering = True
        most = await agent.register(
            self._database, self._claimant, concurrency=self._slots.size, version=self._version
        )
        if most is not None:
            self._slots.size = min(self._slots.size, most)

    def stop(self) -> None:
        """Ask for the end."""
        self._executor.close()
        self._stopping.set()

    @property
    def is_broker_failing(self) -> bool:
        """True while commands cannot be fetched."""
        return len(self._consumers) < _CONSUMERS or any(consumer.is_failing for consumer in self._consumers)

    def catch_up(self) -> None:
        """Poll for queued tasks: for some time no command was followed."""
        self._poller.catch_up()
        self._poll_loop.wake()

    def start(self, claim: Claim) -> None:
        """Run a claimed task; its slot is taken already."""
        self._slots.begin()
        self._spawn(self._run(claim))

    def _release(self, claim: Claim, reason: str) -> None:
        """Give a claimed task back that has not begun, and its slot."""
        releasing = self._spawn(self._guard(self._executor.release(claim, reason)))
        releasing.add_done_callback(lambda _: self._slots.give())

    async def _until_stopped(self, *loops: asyncio.Task[None]) -> None:
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait({stopping, *loops}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()

    async def _open(self) -> None:
        """Begin to fetch once the broker is there: until then fallback polling finds tasks."""
        await self._transport.wait_connected()
        pool = subjects.task_nudge(self._claimant.workspace, self._claimant.agent_type)
        await self._transport.on_task(pool, self._receive_hint, group=_HINTED)
        if self._claimant.agent is not None:
            routed = subjects.routed_nudge(self._claimant.workspace, self._claimant.agent_type)
            await self._transport.on_task(routed, self._receive_routed, group="")
        await self._follow_nudges.begin()
        await asyncio.gather(
            *(self._open_priority_subject(priority) for priority in subjects.PRIORITIES), self._open_shared()
        )
        self.ready.set()
        _log.info("worker_ready", agent_type=self._claimant.agent_type, slots=self._slots.size)

    async def _open_priority_subject(self, priority: int) -> None:
        buffer = self.prefetcher.buffer(priority)
        subject = subjects.priority_subject(self._claimant.workspace, self._claimant.agent_type, priority)
        buffer.consumer = await self._consume(
            subject, partial(self.prefetcher.receive, buffer), self.prefetcher.initial_depth, is_split=True
        )

    async def _open_shared(self) -> None:
        subject = subjects.shared_execute(self._claimant.workspace)
        self._shared_consumer = await self._consume(subject, self._receive_shared, _SHARED_SUBJECT_DEPTH)

    async def _consume(
        self, subject: str, on_delivery: Callable[[Delivery], None], depth: int, *, is_split: bool = False
    ) -> Consumer:
        """Begin to fetch one subject; try until it succeeds."""
        while True:
            try:
                consumer = await self._transport.consume(subject, on_delivery, depth=depth, is_split=is_split)
            except Exception as error:
                self._emit(TaskCrashed(type(error).__name__, f"{subject}: {error}"[:500]))
                await asyncio.sleep(_OPEN_AGAIN_SECONDS)
            else:
                self._consumers.append(consumer)
                return consumer

    def _receive_shared(self, delivery: Delivery) -> None:
        self._spawn(self._take_in(delivery))

    async def _take_in(self, delivery: Delivery) -> None:
        await self._guard(self._router.receive(delivery))
        if self._shared_consumer is not None:
            self._shared_consumer.done()

    def _receive_hint(self, body: bytes) -> None:
        """Take in a hint. It proves nothing: the guard of the claim decides."""
        if _TASK_ID.fullmatch(body):
            self.prefetcher.hint(body.decode())

    def _receive_routed(self, body: bytes) -> None:
        """Look for tasks that only some agents may run, unless they are for another one."""
        if not body.startswith(b"a:") or body == f"a:{self._claimant.agent}".encode():
            self._poller.expect_routed()
            self._poll_loop.wake()

    async def _claim_hinted(self, task_ids: Sequence[str], start: Callable[[Claim], None]) -> None:
        await self._guard(self._executor.claim_hinted(task_ids, start))

    async def _claim(self, deliveries: Sequence[Delivery], start: Callable[[Claim], None]) -> None:
        await self._guard(self._executor.claim_all(deliveries, "priority", start))

    async def _run(self, claim: Claim) -> None:
        began_at = time.monotonic()
        try:
            await self._executor.run(claim)
        except Exception as error:  # its lease expires, and it is queued again
            self._emit(TaskCrashed(type(error).__name__, str(error)[:500]))
        finally:
            current.end()  # a free slot starts the next task from here
            self._follow_nudges.note()
            self.prefetcher.note_run(time.monotonic() - began_at)
            self._slots.end()

    async def _guard(self, work: Awaitable[None]) -> None:
        """Report an unexpected error of some work. What it had claimed is queued again."""
        try:
            await work
        except Exception as error:
            self._emit(TaskCrashed(type(error).__name__, str(error)[:500]))
        finally:
            current.end()

    def _note_paused(self, task_type: str) -> None:
        if self._pause_watch.note(task_type):
            self._pause_loop.wake()

    def _feed(self) -> None:
        """Ask Postgres for the next task where it had more than there were slots for."""
        if self._poller.is_waiting_for_slot and self._slots.free > 0:
            self._poll_loop.wake()

    async def _watch(self) -> None:
        was_failing = False
        while True:
            self._leases.check()
            self._heartbeat.look()
            if self._heartbeat.is_renewing and self._leases.is_renewing:
                self._slots.resume(_NO_HEARTBEAT)
            else:  # what is claimed now would be cut before its lease is over, again and again
                self._slots.hold(_NO_HEARTBEAT)
            if self._slots.free <= 0:
                self._leases.note_full()
            self.prefetcher.keep_waiting()
            is_failing = self.is_broker_failing
            if is_failing and not was_failing:
                self._poll_loop.wake()  # it may be in a long pause, from when there was nothing to do
            was_failing = is_failing
            await asyncio.sleep(_WATCH_SECONDS)

    async def _watch_heartbeat(self) -> None:
        while True:
            await self._guard(self._heartbeat.check())
            if not self._heartbeat.is_renewing:
                await self._guard(self._excuse_heartbeat())
            if self._heartbeat.is_missing:
                raise UnavailableError("there has been no heartbeat process for too long: its log says why")
            await asyncio.sleep(_WATCH_SECONDS)

    async def _excuse_heartbeat(self) -> None:
        """Go on without a heartbeat process while Postgres is away: none can start then."""
        try:
            await agent.touch(
                self._database, self._claimant.agent_id, idle_seconds=0.0, running=self._slots.running
            )
        except UnavailableError:
            self._heartbeat.excuse()

    async def _close(self, poller: asyncio.Task[None]) -> None:
        """Start nothing more, give back what has not started, let run what runs, release the rest."""
        deadline = asyncio.get_running_loop().time() + self._grace_seconds
        self._poll_loop.stop()
        self.prefetcher.hold()
        await asyncio.gather(*(consumer.stop() for consumer in self._consumers), return_exceptions=True)
        self.prefetcher.close()
        await asyncio.wait({poller}, timeout=deadline - asyncio.get_running_loop().time())
        await self._wait(deadline)
        self._leases.end_all("shutdown")
        await self._wait(asyncio.get_running_loop().time() + _LAST_WORDS_SECONDS)
        self._handlers.close()
        await self._sign_off()

    async def _sign_off(self) -> None:
        try:
            await agent.stop(self._database, self._claimant.agent_id)
        except GrnsError as error:
            self._emit(TaskCrashed(type(error).__name__, str(error)))

    async def _wait(self, deadline: float) -> None:
        loop = asyncio.get_running_loop()
        # A claim that ends may have started a run.
        while (running := self._running | self.prefetcher.running) and (rest := deadline - loop.time()) > 0:
            await asyncio.wait(running, timeout=rest)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task
