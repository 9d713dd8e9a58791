"""Whether a worker's pool is paused: looked up every two seconds, and when a claim was refused for that.

That nothing of a paused pool is claimed is the statements' affair. A worker that knows of it fetches nothing
meanwhile, says so, and knows afterwards that there is something to catch up with.
"""

from __future__ import annotations

from collections.abc import Callable, Set

from grns.errors import GrnsError
from grns.model.envelope import rfc3339
from grns.postgres.database import Database
from grns.tasks import pauses as pause
from grns.tasks.pauses import Pause
from grns.telemetry.signal import Emit
from grns.telemetry.task_signals import WorkerPaused, WorkerResumed
from grns.worker.claims import Claimant
from grns.worker.slots import Slots

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
        self._missed: set[str] = set()  # task types of commands that were not followed

    def note(self, task_type: str) -> bool:
        """Note that a command was not followed because of a pause; True where that is news: look soon."""
        self._missed.add(task_type)
        return not self._is_paused(task_type)

    async def tick(self) -> float:
        """Look once, and say when to look again."""
        # What is missed from now on is for the next look: this one may be too early for it.
        missed, self._missed = self._missed, set()
        try:
            found = await pause.in_force(self._database, self._who.workspace, [self._who.agent_type])
        except GrnsError:
            self._missed |= missed
            raise
        before, self._paused = self._paused, {one.task_type: one for one in found}
        still_paused = set(filter(self._is_paused, missed))
        self._missed |= still_paused
        ended = before.keys() - self._paused.keys()
        self._tell(begun=self._paused.keys() - before.keys(), ended=ended)
        if None in self._paused or self._paused.keys() >= self._who.handled.keys():
            self._slots.hold(_WHY)
        else:
            self._slots.resume(_WHY)
        if ended or missed - still_paused:  # one may have begun and ended between two looks
            self._on_resumed()
        return _LOOK_SECONDS

    def _is_paused(self, task_type: str) -> bool:
        return not self._paused.keys().isdisjoint((None, task_type))

    def _tell(self, *, begun: Set[str | None], ended: Set[str | None]) -> None:
        for task_type in begun:
            one = self._paused[task_type]
            until = None if one.until is None else rfc3339(one.until)
            self._emit(WorkerPaused(self._who.agent_type, task_type, one.paused_by, one.reason, until))
        for task_type in ended:
            self._emit(WorkerResumed(self._who.agent_type, task_type))
