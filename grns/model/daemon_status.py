"""The status of the daemons, as far as the database shows it. Seconds are by its clock."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DaemonStatus:
    """The status of all daemons; None is never.

    `lag_seconds` is the age of the oldest unpublished row of the event log, `uncounted_seconds` that of the
    oldest uncounted one; 0 if there are none. `is_published` is about the requested row. Some daemons show
    only as work not done: `lapsed_seconds` is the time since the oldest expired lease, `overdue_seconds` the
    time that a task has been due, `operations_late_seconds` the time without progress of an operation.
    """

    relay_has_leader: bool = True
    relay_owner: str | None = None
    published_up_to: int = 0
    log_high: int = 0
    lag_seconds: float = 0.0
    is_published: bool = True
    stats_has_leader: bool = True
    counted_up_to: int = 0
    uncounted_seconds: float = 0.0
    reaped_seconds_ago: float | None = 0.0
    is_reaper_late: bool = False
    reaper_holds_seconds: float = 0.0
    lapsed_seconds: float = 0.0
    overdue_seconds: float = 0.0
    operations_late_seconds: float = 0.0
    janitor_seconds_ago: float | None = 0.0
