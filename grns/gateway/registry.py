"""Which agents work over HTTP, and how many tasks each has, as far as this process has heard of it.

Their heartbeats are their requests: each makes its agent known, or notes that it lives, every few seconds at
most. What is known here is for lists of workers; no guard looks at it.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass, field
from uuid import UUID

from grns.errors import ConflictError, GrnsError
from grns.postgres.database import Database
from grns.telemetry.signal import Emit
from grns.telemetry.task_signals import TaskCrashed
from grns.worker import registry as agent
from grns.worker.claims import Claimant

_NOTE_SECONDS = 5.0
_MOST = 10_000


@dataclass(slots=True)
class _Seen:
    """When an agent was noted last, and until when it holds which leases, unless it renews them."""

    noted_at: float = -_NOTE_SECONDS
    is_registered: bool = False
    said: tuple[object, ...] = ()  # what it has said of itself: it may claim other types than before
    order: str | None = None
    leases: dict[UUID, float] = field(default_factory=dict)


class WorkerRegistry:
    """Notes who is there. What cannot be written now is written with a later request.

    The agent's key counts, too: a client that holds a token could write another client's agent into it.
    """

    def __init__(self, database: Database, *, emit: Emit) -> None:
        self._database = database
        self._emit = emit
        self._seen: OrderedDict[tuple[str, str], _Seen] = OrderedDict()

    async def register(self, claimant: Claimant, *, name: str, version: str) -> str | None:
        """Make an agent known that asks for a task, and return what it is told to do.

        Raises ConflictError: an agent of this name is of another pool.
        """
        seen = self._of(claimant.workspace, claimant.agent_id)
        said = (version, claimant.lease_seconds, *sorted(claimant.handled))
        if seen.is_registered and seen.said == said:
            await self.note(claimant.workspace, claimant.agent_id)
        if seen.is_registered and seen.said == said:
            return seen.order
        try:
            await agent.register(
                self._database, claimant, concurrency=1, version=version, host=name, pid=agent.NO_PROCESS
            )
        except ConflictError:
            raise
        except GrnsError as error:
            self._emit(TaskCrashed(type(error).__name__, str(error)[:500]))
        else:
            seen.order = None if not seen.is_registered else seen.order
            seen.is_registered, seen.noted_at, seen.said = True, time.monotonic(), said
        return seen.order

    async def note(self, workspace: str, agent_id: str) -> str | None:
        """Note that an agent lives, unless that was noted a moment ago; return what it is told to do."""
        seen, now = self._of(workspace, agent_id), time.monotonic()
        if now - seen.noted_at < _NOTE_SECONDS:
            return seen.order
        seen.noted_at = now
        seen.leases = {lease_id: until for lease_id, until in seen.leases.items() if until > now}
        try:
            touched = await agent.touch(
                self._database, agent_id, idle_seconds=0.0, running=len(seen.leases), workspace=workspace
            )
            seen.is_registered &= touched.is_known and not touched.has_stopped  # a claim begins another life
            seen.order = touched.order
        except GrnsError as error:
            self._emit(TaskCrashed(type(error).__name__, str(error)[:500]))
        return seen.order

    def holds(self, workspace: str, agent_id: str, lease_id: UUID, lease_seconds: float) -> None:
        """Take note of a lease that an agent has from now on, or goes on having."""
        self._of(workspace, agent_id).leases[lease_id] = time.monotonic() + lease_seconds

    def ended(self, workspace: str, agent_id: str, lease_id: UUID) -> None:
        """Take note of a lease that is over."""
        self._of(workspace, agent_id).leases.pop(lease_id, None)

    def _of(self, workspace: str, agent_id: str) -> _Seen:
        who = (workspace, agent_id)
        seen = self._seen.setdefault(who, _Seen())
        self._seen.move_to_end(who)
        if len(self._seen) > _MOST:
            self._seen.popitem(last=False)
        return seen
