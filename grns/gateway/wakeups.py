"""Nudges: agents that do not wait here are told, at a URL of theirs, that something waits for them.

It is only a hint, which may get lost, and nothing depends on it: no task is handed over with it, and agents
look for themselves when they start and now and then. Who has asked for it is known to this process alone, and
only for as long as they come again.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from dataclasses import dataclass

from grns.access.limiter import WorkspaceLimiter
from grns.access.principals import Principal
from grns.model import wakeup_url
from grns.model.url_policy import Destination
from grns.postgres.database import Database
from grns.runtime.service import PeriodicLoop
from grns.tasks.pools import read_pools
from grns.telemetry.signal import Emit
from grns.telemetry.task_signals import AgentNudged, NudgeFailed
from grns.webhooks.http import HttpSender

LOOK_SECONDS = 2.0
_AGAIN_SECONDS, _LONGEST_PAUSE_SECONDS = 30.0, 600.0
_KEPT_SECONDS = 3600.0
_MOST, _MOST_OF_ONE = 1000, 50
_AT_ONCE = 20


@dataclass(slots=True)
class _Wakeup:
    """One URL of an agent, and when it may be nudged again."""

    workspace: str
    agent_type: str
    principal: Principal
    to: Destination
    kept_until: float
    due_at: float = 0.0
    failures: int = 0


class Wakeups:
    """Looks every two seconds which tasks wait, with one statement a workspace, while there are URLs."""

    def __init__(self, *, database: Database, hosts: frozenset[str], http: HttpSender, emit: Emit) -> None:
        self._database = database
        self._hosts = hosts
        self._http = http
        self._emit = emit
        self.places = WorkspaceLimiter("nudge URLs", most=_MOST, most_of_one=_MOST_OF_ONE)
        self._wakeups: dict[tuple[str, str, str], _Wakeup] = {}
        self._loop = PeriodicLoop("agent_nudges", self.tick, emit=emit)
        self._running: asyncio.Task[None] | None = None

    def keep(self, url: str, *, workspace: str, agent_type: str, principal: Principal) -> None:
        """Nudge an agent there from now on: it asks for tasks just now, and knows what there is.

        Raises `InvalidInputError` where the URL is on no host that was allowed, `RateLimitedError` where
        there are enough.
        """
        to = wakeup_url.check(url, self._hosts)
        now, key = time.monotonic(), (workspace, agent_type, url)
        known = self._wakeups.get(key)
        if known is None:
            self.places.take(principal)
        holder = principal if known is None else known.principal
        self._wakeups[key] = _Wakeup(
            workspace, agent_type, holder, to, now + _KEPT_SECONDS, now + LOOK_SECONDS
        )

    def begin(self) -> None:
        """Begin to look, unless it does already."""
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._loop.run())

    async def close(self) -> None:
        """Send no more nudges."""
        self._loop.stop()
        if self._running is not None:
            await asyncio.wait({self._running})

    async def tick(self) -> float:
        """Nudge the agents that have a waiting task; return the seconds until the next look."""
        now = time.monotonic()
        for key, wakeup in list(self._wakeups.items()):
            if wakeup.kept_until <= now:
                del self._wakeups[key]
                self.places.give_back(wakeup.principal)
        due: dict[str, list[_Wakeup]] = defaultdict(list)
        for wakeup in self._wakeups.values():
            if wakeup.due_at <= now:
                due[wakeup.workspace].append(wakeup)
        for workspace, wakeups in due.items():
            busy = await self._busy(workspace, sorted({wakeup.agent_type for wakeup in wakeups}))
            await self._nudge([wakeup for wakeup in wakeups if wakeup.agent_type in busy])
        return LOOK_SECONDS

    async def _busy(self, workspace: str, agent_types: list[str]) -> set[str]:
        """Return the agent types for which something waits that may be claimed."""
        pools = await read_pools(self._database, workspace, agent_types)
        return {
            pool.agent_type
            for pool in pools
            if pool.queued and all(pause.task_type is not None for pause in pool.pauses)
        }

    async def _nudge(self, wakeups: list[_Wakeup]) -> None:
        for start in range(0, len(wakeups), _AT_ONCE):
            await asyncio.gather(*(self._ring(wakeup) for wakeup in wakeups[start : start + _AT_ONCE]))

    async def _ring(self, wakeup: _Wakeup) -> None:
        body = b'{"workspace":"%b","agent_type":"%b"}' % (
            wakeup.workspace.encode(),
            wakeup.agent_type.encode(),
        )
        wakeup.due_at = time.monotonic() + _AGAIN_SECONDS
        error = (await self._http.post(wakeup.to, {}, body)).error
        wakeup.failures = wakeup.failures + 1 if error else 0
        pause = min(_AGAIN_SECONDS * 2 ** min(wakeup.failures, 10), _LONGEST_PAUSE_SECONDS)
        wakeup.due_at = time.monotonic() + pause
        if error:
            self._emit(NudgeFailed(wakeup.agent_type, wakeup.to.host_and_port, error, pause))
        else:
            self._emit(AgentNudged(wakeup.agent_type, wakeup.to.host_and_port))
