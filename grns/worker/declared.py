"""Schedules that a pool declares beside its handlers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from grns.errors import InvalidInputError
from grns.model.json import Limits
from grns.postgres.database import Database
from grns.schedules import service
from grns.schedules.model import ScheduleSpec, schedule_spec
from grns.schedules.ticks import Rhythm
from grns.worker.handler import Handler


@dataclass(frozen=True, slots=True)
class DeclaredSchedule:
    """A schedule of a handler. Each worker of the pool puts it in place when it starts."""

    handler: Handler[Any, Any]
    payload: Any
    fields: dict[str, Any]

    def __post_init__(self) -> None:
        """Raise `InvalidInputError` if it cannot be a schedule."""
        spec = self._spec("worker")
        Rhythm(spec.cron, spec.every_seconds, spec.time_zone, datetime.now(UTC))

    def spec(self) -> ScheduleSpec:
        """Return the schedule, whose pool is known once all pools are included."""
        return self._spec(self.handler.agent_type)

    def _spec(self, agent_type: str) -> ScheduleSpec:
        return schedule_spec(
            task_type=self.handler.task_type,
            agent_type=agent_type,
            payload=self.handler.signature.payload_text(self.payload),
            **(self.fields | {"name": self.fields["name"] or f"{agent_type}-{self.handler.task_type}"}),
        )


async def put_declared(
    database: Database, declared: Sequence[DeclaredSchedule], *, workspace: str, actor: str, limits: Limits
) -> None:
    """Put schedules in place. One that is paused stays so, and one that is no longer declared stays.

    Raises InvalidInputError if two have one name.
    """
    specs = {one.spec().name: one.spec() for one in declared}
    if len(specs) < len(declared):
        raise InvalidInputError("bad_schedule", "two schedules of the pool have one name: give one a name=")
    for spec in specs.values():
        await service.put(database, spec, workspace=workspace, actor=actor, limits=limits)
