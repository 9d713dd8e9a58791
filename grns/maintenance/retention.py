"""Retention: the walk over all tasks that deletes those which ended long ago.

Users' tables may refer to tasks, and then Postgres may refuse to delete one, or wait for somebody who
holds what would go with it. That keeps the one task, and neither its neighbours nor the walk.
"""

from __future__ import annotations

import time

from grns.errors import ContendedError, GrnsError, InvalidInputError, OutcomeUnknownError
from grns.maintenance import upkeep
from grns.postgres.database import Database
from grns.runtime.adaptive_batch import AdaptiveBatchSize
from grns.telemetry.emit import Emit
from grns.telemetry.facts.process import TickFailed
from grns.telemetry.facts.upkeep import RowsDeleted

_PAGE = 1000
_STEP_SECONDS = 0.25
_WALK_EVERY_SECONDS = 3600.0


class Retention:
    """Deletes page by page; one that cannot go is halved until it is one task, and that is stepped past."""

    def __init__(
        self,
        database: Database,
        *,
        ended_seconds: float,
        dead_seconds: float,
        emit: Emit,
        page_rows: int = _PAGE,
    ) -> None:
        self._database = database
        self._ended_seconds = ended_seconds
        self._dead_seconds = dead_seconds
        self._emit = emit
        self._batch_size = AdaptiveBatchSize(page_rows)
        self._walked_to = ""
        self._walk_at = 0.0
        self._refused = 0

    async def step(self) -> bool:
        """Look at one page of tasks; True while the walk over all of them has not come to its end.

        Where many are referred to, pages are short: then some of them, as they cost no more than a long one.
        """
        if time.monotonic() < self._walk_at:
            return False
        until = time.monotonic() + _STEP_SECONDS
        while (is_more_left := await self._look_at_page()) and self._batch_size.is_short:
            if time.monotonic() > until:
                break
        return is_more_left

    async def _look_at_page(self) -> bool:
        rows = self._batch_size.rows
        try:
            page = await upkeep.delete_tasks(
                self._database, self._walked_to, rows, self._ended_seconds, self._dead_seconds
            )
        except (InvalidInputError, ContendedError, OutcomeUnknownError) as error:
            return self._batch_size.shorten() or await self._step_past(error)
        self._batch_size.lengthen()
        if page.deleted:
            self._emit(RowsDeleted("tasks", page.deleted))
        self._walked_to = page.last_id
        return page.seen == rows or self._end()

    async def _step_past(self, error: GrnsError) -> bool:
        task_id = await upkeep.next_task(self._database, self._walked_to)
        if task_id is None:
            return self._end()
        self._refused += 1
        if self._refused == 1:  # where each task is referred to, each is refused: told of once is enough
            self._emit(TickFailed("janitor_retention", f"task {task_id} cannot be deleted: {error}"))
        self._walked_to = task_id
        return True

    def _end(self) -> bool:
        if self._refused > 1:
            self._emit(TickFailed("janitor_retention", f"{self._refused} tasks could not be deleted"))
        self._refused = 0
        self._walked_to = ""
        self._walk_at = time.monotonic() + _WALK_EVERY_SECONDS
        return False
