"""Schedules, limits and published task types that a pool declares beside its handlers."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from grns.errors import InvalidInputError
from grns.limits import service as limits_service
from grns.limits.model import LimitSpec, limit_spec
from grns.model.json import ANY_SIZE, Limits, dumps
from grns.postgres.database import Database
from grns.schedules import service
from grns.schedules.model import ScheduleSpec, schedule_spec
from grns.schedules.ticks import Rhythm
from grns.worker.handler import Handler

_SCHEMA = Limits(document_bytes=64 * 1024)


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
            payload=self.handler.call_signature.payload_text(self.payload, self.handler.secret_paths),
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
    secrets = {one.spec().name: one.handler.secret_paths for one in declared}
    for spec in specs.values():
        await service.put(
            database,
            spec,
            workspace=workspace,
            actor=actor,
            limits=limits,
            is_declared=True,
            secret=secrets[spec.name],
        )


@dataclass(frozen=True, slots=True)
class DeclaredLimit:
    """A limit of a handler. Each worker of the pool puts it in place when it starts."""

    handler: Handler[Any, Any]
    fields: dict[str, Any]

    def __post_init__(self) -> None:
        """Raise `InvalidInputError` if it cannot be a limit."""
        spec = limit_spec(agent_type="worker", **self.fields)
        if (field := self.handler.call_signature.lacks(spec.key)) is not None:
            raise InvalidInputError(
                "bad_limit", f"key: the payload of {self.handler.task_type} has no field {field}"
            )


def limit_specs(declared: Iterable[DeclaredLimit]) -> list[LimitSpec]:
    """Return the limits of a pool, one for each name, with all task types under it.

    Raises InvalidInputError if a name is declared with different values.
    """
    types: dict[str, list[DeclaredLimit]] = {}
    for one in declared:
        types.setdefault(one.fields["name"], []).append(one)
    for name, ones in types.items():
        if any(one.fields != ones[0].fields for one in ones):
            raise InvalidInputError("bad_limit", f"limit {name} is declared twice, with different values")
    return [
        limit_spec(
            agent_type=ones[0].handler.agent_type,
            task_types=sorted(one.handler.task_type for one in ones),
            **ones[0].fields,
        )
        for ones in types.values()
    ]


async def put_declared_limits(
    database: Database, declared: Iterable[DeclaredLimit], *, workspace: str, actor: str
) -> None:
    """Put limits in place. One that is paused stays so, and one that is no longer declared stays."""
    for spec in limit_specs(declared):
        await limits_service.put(database, spec, workspace=workspace, actor=actor)


async def publish_task_types(
    database: Database, handlers: Iterable[Handler[Any, Any]], *, workspace: str, agent_type: str
) -> None:
    """Keep the task types of a pool that are published, have secrets or follow-ups, and no others."""
    published = sorted(
        (one for one in handlers if one.is_published or one.secret_paths or one.follow_ups),
        key=lambda one: one.task_type,
    )
    schemas = [
        dumps(one.call_signature.payload_schema(), _SCHEMA) if one.is_published else "{}" for one in published
    ]
    await database.run(
        "publish_task_types", workspace, agent_type, [one.task_type for one in published],
        [inspect.getdoc(one.function) for one in published], schemas,
        [one.is_published for one in published],
        [",".join(".".join(path) for path in one.secret_paths) for one in published],
        [dumps(_follow_ups(one), ANY_SIZE) for one in published],
    )  # fmt: skip


def _follow_ups(handler: Handler[Any, Any]) -> list[dict[str, Any]]:
    return [
        {"outcome": outcome, **one.of(handler.agent_type).model_dump()}
        for outcome, ones in handler.follow_ups.items()
        for one in ones
    ]
