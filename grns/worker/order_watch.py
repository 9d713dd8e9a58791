"""What a worker's agent is told to do: looked up every two seconds."""

from __future__ import annotations

from collections.abc import Callable

from grns.postgres.database import Database
from grns.telemetry.signal import Emit
from grns.telemetry.task_signals import AgentOrdered
from grns.worker.claims import Claimant
from grns.worker.slots import Slots

_LOOK_SECONDS = 2.0
_DRAIN_LOOK_SECONDS = 0.5
_NEVER_SECONDS = 3600.0
_WHY = "drain"


class OrderWatch:
    """Ends the worker when its agent is told to: at once, or once its tasks have ended.

    A worker without the name of an agent has nothing to look up.
    """

    def __init__(
        self, *, database: Database, claimant: Claimant, slots: Slots, stop: Callable[[], None], emit: Emit
    ) -> None:
        self._database = database
        self._who = claimant
        self._slots = slots
        self._stop = stop
        self._emit = emit
        self._told: str | None = None

    async def tick(self) -> float:
        """Look once, and say when to look again."""
        if self._who.agent is None:
            return _NEVER_SECONDS
        who = (self._who.workspace, self._who.agent, self._who.agent_id)
        rows = await self._database.run("read_order", *who)
        order = rows[0]["order"] if rows else None
        if order != self._told and order is not None:
            self._emit(AgentOrdered(self._who.agent, order, rows[0]["ordered_by"], rows[0]["reason"]))
        self._told = order
        if order is None:
            self._slots.resume(_WHY)
            return _LOOK_SECONDS
        self._slots.hold(_WHY)
        if order == "stop" or self._slots.taken == 0:
            self._stop()
        return _DRAIN_LOOK_SECONDS
