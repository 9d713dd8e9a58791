"""Schedules: what a user says, and what Postgres has."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from grns.errors import InvalidInputError
from grns.model.envelope import first_problem
from grns.model.submission import AgentType, MaxAttempts, Priority, Token
from grns.schedules.ticks import (
    LONGEST_WINDOW_SECONDS,
    MOST_JITTER_SECONDS,
    CatchUp,
    Overlap,
    Rhythm,
    jitter,
)

_DAY_SECONDS = 86_400.0
_YEAR_SECONDS = 366 * _DAY_SECONDS
RunOutcome = Literal["submitted", "skipped", "missed"]
RunSource = Literal["tick", "run", "backfill"]


class ScheduleSpec(BaseModel):
    """A schedule to create or to replace: when a task is submitted, and which.

    Either `cron`, five fields by the clocks of `time_zone`, or `every_seconds`. While the task before has not
    ended, `overlap` says what happens: `skip` submits none, `queue_one` submits one that waits for its end,
    `queue` submits one at each time, each of which waits for the one before, `cancel_previous` cancels it and
    submits one that waits for its end, `allow` submits one. Where times were missed, because no scheduler
    ran or the schedule was changed, `catch_up` submits a task for the `latest` of them, for `all` of them
    (100 at most), or for `none`; those longer ago than `window_seconds` are passed over. Each task starts up
    to `jitter_seconds` later than it is due. Once `pause_after_failures` of its tasks in a row have failed,
    the schedule is paused.

    Example:
        {"name": "report", "cron": "0 9 * * 1-5", "time_zone": "Europe/Vienna",
         "task_type": "write_report", "agent_type": "reports", "payload": {"days": 1}}
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Token
    cron: Annotated[str, Field(pattern=r"^[ -~]{1,200}$")] | None = None
    every_seconds: Annotated[float, Field(ge=1, le=_YEAR_SECONDS, allow_inf_nan=False)] | None = None
    time_zone: Annotated[str, Field(pattern=r"^[A-Za-z0-9_+/-]{1,64}$")] = "UTC"
    task_type: Token
    agent_type: AgentType
    payload: dict[str, Any] = Field(default_factory=dict)
    priority: Priority = 2
    max_attempts: MaxAttempts | None = None
    overlap: Overlap = "skip"
    catch_up: CatchUp = "latest"
    window_seconds: Annotated[float, Field(ge=0, le=LONGEST_WINDOW_SECONDS, allow_inf_nan=False)] = (
        _DAY_SECONDS
    )
    jitter_seconds: Annotated[float, Field(ge=0, lt=MOST_JITTER_SECONDS, allow_inf_nan=False)] = 0.0
    pause_after_failures: Annotated[int, Field(ge=1, le=1000, strict=True)] | None = None

    @model_validator(mode="after")
    def _one_rhythm(self) -> ScheduleSpec:
        if (self.cron is None) is (self.every_seconds is None):
            raise ValueError("say either cron or every_seconds")
        if self.every_seconds is not None and self.jitter_seconds >= self.every_seconds:
            raise ValueError("jitter_seconds is less than every_seconds")
        return self


def schedule_spec(**fields: Any) -> ScheduleSpec:
    """Return a checked schedule. Raises InvalidInputError: `bad_schedule` names the wrong field."""
    try:
        return ScheduleSpec.model_validate(fields)
    except ValidationError as error:
        raise InvalidInputError("bad_schedule", first_problem(error).removeprefix("document: ")) from error


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule as Postgres has it.

    `next_at` is the next time that is due; `last_due_at` is the latest time that has a task, and
    `last_task_id` the task that was submitted last. While it has a `paused_at`, no task is submitted.
    `failures` is how many of its last tasks ended failed or dead in a row, as of the last time that was
    due. `declared_at` is when a worker that declares it in code last started; None if a user has changed it
    since.
    """

    workspace: str
    name: str
    cron: str | None
    every_seconds: float | None
    time_zone: str
    task_type: str
    agent_type: str
    payload: Any
    priority: int
    max_attempts: int | None
    overlap: Overlap
    catch_up: CatchUp
    window_seconds: float
    jitter_seconds: float
    pause_after_failures: int | None
    failures: int
    anchor_at: datetime
    next_at: datetime
    last_due_at: datetime | None
    last_task_id: str | None
    paused_at: datetime | None
    paused_by: str | None
    pause_reason: str | None
    created_at: datetime
    updated_at: datetime
    updated_by: str
    declared_at: datetime | None
    version: int

    @property
    def rhythm(self) -> Rhythm:
        """When it is due. Raises InvalidInputError if its time zone is not known here."""
        return Rhythm(self.cron, self.every_seconds, self.time_zone, self.anchor_at)

    @property
    def when(self) -> str:
        """The rhythm in words."""
        if self.cron is not None:
            return self.cron if self.time_zone == "UTC" else f"{self.cron} {self.time_zone}"
        return f"every {self.every_seconds:g} s"

    def run_at(self, due_at: datetime) -> datetime | None:
        """Return when the task of a time may start; None if that is the time itself."""
        if not self.jitter_seconds:
            return None
        return due_at + jitter(f"{self.workspace}/{self.name}", due_at, self.jitter_seconds)

    def key(self, due_at: datetime) -> str:
        """Return the idempotency key of the task of a time, which is in UTC."""
        return f"schedule/{self.name}/{due_at:%Y-%m-%dT%H:%M:%S.%fZ}"

    def next_times(self, count: int, *, after: datetime | None = None) -> list[datetime]:
        """Return the next times, in UTC."""
        return list(islice(self.rhythm.after(after or datetime.now(UTC)), count))


@dataclass(frozen=True, slots=True)
class Backfill:
    """What became of a range of times.

    `submitted` have got a task now; `left_alone` had one before, or another task has their idempotency key.
    """

    times: int
    submitted: int
    left_alone: int
    dry_run: bool


@dataclass(frozen=True, slots=True)
class Pruned:
    """Schedules that no live worker declared any more. They are deleted, unless it was a dry run."""

    schedules: list[Schedule]
    dry_run: bool


@dataclass(frozen=True, slots=True)
class ScheduleRun:
    """What was decided about a time that was due.

    For `submitted`, `task_id` is the new task; for `skipped`, the one that still ran. `missed` stands for as
    many times as `missed` says, the last of which is `due_at`. `source` is `tick` for a time that was due,
    `run` for a run that was asked for, `backfill` for a time that was run later.
    """

    due_at: datetime
    outcome: RunOutcome
    reason: str | None
    task_id: str | None
    missed: int | None
    decided_at: datetime
    source: RunSource
