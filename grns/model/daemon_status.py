"""How the daemons are, as far as they leave a trace in the database. Seconds are by its clock."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DaemonStatus:
    """The pulse of all daemons. What never was has no time (None).

    `lag_seconds` is how old the oldest row of the log is that is not published, `uncounted_seconds` the same
    of what is not counted; 0 where there is none. `is_published` is of the row that was asked for. Some leave
    no trace but what they have not done: `lapsed_seconds` is for how long the oldest lease has been over,
    `overdue_seconds` for how long a task has been due, `operations_late_seconds` for how long nobody has gone
    on with an operation.
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
