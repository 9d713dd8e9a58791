"""Whether a worker's pool is paused: looked up every two seconds.

That nothing of a paused pool is claimed is the statements' affair. A worker that knows of it fetches nothing
meanwhile, says so, and knows afterwards that there is something to catch up with.
"""

from __future__ import annotations

from collections.abc import Callable

from grns.envelope import rfc3339
from grns.slots import Slots
from grns.store import pause
from grns.store.claim import Claimant
from grns.store.database import Database
from grns.store.pause import Pause
from grns.telemetry.emit import Emit
from grns.telemetry.facts.work import PoolPaused, PoolResumed

_LOOK_SECONDS = 2.0
_WHY = "pause"


class PauseWatch:
    """Holds the slots back while there is nothing that the worker may claim.

    `on_resumed` is called when a pause has ended: commands that came during it were acknowledged and not
    followed, and others are older than the broker keeps them.
    """

    def __init__(
        self,
        *,
        database: Database,
        claimant: Claimant,
        slots: Slots,
        on_resumed: Callable[[], None],
        emit: Emit,
    ) -> None:
        self._database = database
        self._who = claimant
        self._slots = slots
        self._on_resumed = on_resumed
        self._emit = emit
        self._paused: dict[str | None, Pause] = {}  # by task type

    async def tick(self) -> float:
        """Look once, and say when to look again."""
        found = await pause.in_force(self._database, self._who.workspace, [self._who.agent_type])
        before, self._paused = self._paused, {one.task_type: one for one in found}
        for task_type in self._paused.keys() - before.keys():
            self._tell(self._paused[task_type])
        if None in self._paused or self._paused.keys() >= self._who.handled.keys():
            self._slots.hold(_WHY)
        else:
            self._slots.resume(_WHY)
        if ended := before.keys() - self._paused.keys():
            for task_type in ended:
                self._emit(PoolResumed(self._who.agent_type, task_type))
            self._on_resumed()
        return _LOOK_SECONDS

    def _tell(self, begun: Pause) -> None:
        until = None if begun.until is None else rfc3339(begun.until)
        self._emit(PoolPaused(begun.agent_type, begun.task_type, begun.paused_by, begun.reason, until))
