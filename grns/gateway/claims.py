"""Claims over HTTP: agents wait here for their tasks, and hold no connection to the database meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from grns.access.keys import recognise
from grns.access.limiter import WorkspaceLimiter
from grns.access.principals import Principal
from grns.errors import ConflictError, GrnsError, RateLimitedError, SealedError
from grns.gateway.long_poll import LongPollQueue, PollIntervals
from grns.gateway.pending_claim import PendingClaim
from grns.gateway.registry import WorkerRegistry
from grns.gateway.wakeups import Wakeups
from grns.model.claim_token import ClaimToken
from grns.model.outcome import Claim
from grns.postgres.database import Database
from grns.telemetry.signal import Emit
from grns.telemetry.task_signals import ClaimReturned
from grns.worker.claims import Claimant, Claims, payload_closed
from grns.worker.executor import Claimer
from grns.worker.finishes import Finishes
from grns.worker.progress import ProgressStore

# How long priority subjects get to deliver before a request that does not wait gets the answer "nothing".
_LEAST_WAIT_SECONDS = 0.25
_ROOM_SECONDS = 60.0
# How long an agent that has as many tasks as it may have waits at most.
_FULL_SECONDS = 5.0
_MOST_WAITING, _MOST_OF_ONE = 300, 100
_MOST_TYPES = 50

MakeClaimer = Callable[[Claims, Claimant], Claimer]


@dataclass(frozen=True, slots=True)
class WaitingWorker:
    """An agent that asks for a task: who it is, whose key it shows, and how long it will wait."""

    claimant: Claimant
    name: str
    version: str
    principal: Principal
    wait_seconds: float


@dataclass(frozen=True, slots=True)
class AssignedTask:
    """A claimed task, the claim token with which the HTTP worker reports its outcome, and its checkpoint."""

    claim: Claim
    token: ClaimToken
    checkpoint: Any = None


class HttpClaims:
    """The long-poll queues of one process, one for each agent type of a workspace that is asked for."""

    def __init__(
        self,
        *,
        database: Database,
        make_claimer: MakeClaimer,
        make_queue: Callable[[Claimant], LongPollQueue],
        registry: WorkerRegistry,
        nudges: Wakeups,
        pace: PollIntervals,
        emit: Emit,
    ) -> None:
        self._database = database
        self._progress = ProgressStore(database, batch_limit=_MOST_WAITING)
        self._make_claimer = make_claimer
        self._make_queue = make_queue
        self._nudges = nudges
        self._pace = pace
        self._emit = emit
        self._registry = registry
        self._queues: dict[tuple[str, str], LongPollQueue] = {}
        self._types: dict[str, set[str]] = {}
        self.places = WorkspaceLimiter("waiting claims", most=_MOST_WAITING, most_of_one=_MOST_OF_ONE)
        self._ending: asyncio.Future[None] | None = None
        self._closing: set[asyncio.Task[None]] = set()

    async def next_task(self, seeking: WaitingWorker, gone: asyncio.Future[None]) -> AssignedTask | None:
        """Return a task for an agent, None where there was none in time, or `gone` was done before.

        A claim for a client that has gone, or for a key that ended meanwhile, is given back.
        Raises `RateLimitedError`, `InvalidInputError`, and `UnauthenticatedError` if the key has ended.
        """
        who, began_at = seeking.claimant, time.monotonic()
        with self.places.place(seeking.principal):
            order = await self._registry.register(who, name=seeking.name, version=seeking.version)
            if order is not None:
                raise ConflictError(f"agent {who.agent} is told to {order}")
            if who.is_counted and not await self._has_room(who):
                ends = {gone, self._end()}
                seconds = min(seeking.wait_seconds, _FULL_SECONDS)
                await asyncio.wait(ends, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
                return None
            pending = self._pending_claim(who)
            try:
                claim = await self._wait(pending, seeking.wait_seconds, gone)
            except asyncio.CancelledError:
                if pending.given.done():
                    self._spawn(self._give_back(pending.given.result()))
                raise
        if claim is None:
            return None
        try:
            await self._check_key(seeking.principal, began_at)
            claim.payload, _ = self._database.vault.open_text(claim.payload, claim.workspace)
            checkpoint = await self._progress.read_checkpoint(claim) if claim.attempt > 1 else None
        except SealedError as error:
            self._emit(payload_closed(claim, error))
            await self._give_back(claim)
            await asyncio.wait(
                {gone, self._end()}, timeout=_FULL_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
            return None
        except BaseException:
            self._spawn(self._give_back(claim))
            raise
        if gone.done():
            await self._give_back(claim)
            return None
        self._registry.holds(who.workspace, who.agent_id, claim.lease_id, who.lease_seconds)
        return AssignedTask(claim, _token_of(claim, who), checkpoint)

    async def _has_room(self, who: Claimant) -> bool:
        """Return whether an agent may have one more task. One that is not registered may."""
        rows = await self._database.run("read_room", who.workspace, who.agent, who.agent_id)
        return not rows or rows[0]["room"] > 0

    async def _check_key(self, principal: Principal, began_at: float) -> None:
        """Refuse a key that ended while its holder waited, with `UnauthenticatedError`."""
        if principal.key_id is not None and time.monotonic() - began_at > _LEAST_WAIT_SECONDS:
            await recognise(self._database, principal.key_id)

    def begin(self) -> None:
        """Begin to wake agents that do not wait here."""
        self._nudges.begin()

    def check_url(self, url: str) -> None:
        """Raise InvalidInputError if agents may not be woken at a URL."""
        self._nudges.check(url)

    def stop(self) -> None:
        """End all waits: the process ends."""
        ending = self._end()
        if not ending.done():
            ending.set_result(None)

    async def close(self) -> None:
        """Close all rooms."""
        self.stop()
        await self._nudges.close()
        queues, self._queues = list(self._queues.values()), {}
        await asyncio.gather(*(queue.close() for queue in queues))
        if self._closing:
            await asyncio.wait(self._closing)

    def waiting(self, workspace: str) -> dict[str, int]:
        """Return how many agents of a workspace wait in this process, by agent type."""
        return {
            agent_type: queue.waiting
            for (of, agent_type), queue in self._queues.items()
            if of == workspace and queue.waiting
        }

    async def _wait(self, pending: PendingClaim, seconds: float, gone: asyncio.Future[None]) -> Claim | None:
        ends = (gone, self._end())
        queue = self._queue(pending.claimant)
        pending.claimer.on_paused.append(queue.note_paused)
        claim = await queue.wait(pending, seconds=max(seconds, _LEAST_WAIT_SECONDS), ends=ends)
        if claim is not None or seconds >= self._pace.after_seconds or any(end.done() for end in ends):
            return claim
        # In so short a wait the queue may not have polled.
        began_ns = time.time_ns()
        for found in await pending.claims.claim_next(1, older_than_seconds=0.0):
            pending.claimer.note_claim(found, "poll", began_ns)
            return found
        return None

    def _pending_claim(self, who: Claimant) -> PendingClaim:
        claims = Claims(self._database, who, batch_limit=1)
        return PendingClaim(who, claims, self._make_claimer(claims, who))

    def _queue(self, who: Claimant) -> LongPollQueue:
        key = (who.workspace, who.agent_type)
        queue = self._queues.get(key)
        if queue is None:
            types = self._types.setdefault(who.workspace, set())
            if who.agent_type not in types and len(types) >= _MOST_TYPES:
                # Each takes durables of the broker, which stay.
                raise RateLimitedError(f"agents of {_MOST_TYPES} types of {who.workspace} have asked already")
            types.add(who.agent_type)
            queue = self._queues[key] = self._make_queue(who)
            queue.open()
            self._look_in(key)
        return queue

    def _look_in(self, key: tuple[str, str]) -> None:
        """Close queues in which no request has waited for a while."""
        queue = self._queues.get(key)
        if queue is None:
            return
        if queue.empty_seconds < _ROOM_SECONDS:
            asyncio.get_running_loop().call_later(_ROOM_SECONDS, self._look_in, key)
        else:
            del self._queues[key]
            self._spawn(queue.close())

    def _end(self) -> asyncio.Future[None]:
        if self._ending is None:
            self._ending = asyncio.get_running_loop().create_future()
        return self._ending

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _give_back(self, claim: Claim) -> None:
        """Release a claim whose request has ended; if that fails, its lease expires."""
        with suppress(GrnsError):
            finishes = Finishes(self._database, batch_limit=1)
            verdict = (await finishes.release([claim], "agent_gone"))[claim.id]
            self._emit(ClaimReturned(claim.id, claim.attempt, claim.trace_id, verdict))


def _token_of(claim: Claim, who: Claimant) -> ClaimToken:
    return ClaimToken.of(
        claim,
        workspace=who.workspace,
        agent_type=who.agent_type,
        agent_id=who.agent_id,
        lease_seconds=who.lease_seconds,
        claimed_at=time.time(),
    )
