"""The screen of `grns top`: on a whole terminal, and as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from grns.cli.output import STYLES, Column, heading, rich_table, table, text
from grns.cli.pool import by_priority, oldest, queued
from grns.text import lasted, safe

Snapshot = Mapping[str, Any]

# In the order in which a task reaches them; those that are rare are shown if they occur.
_RATES = (
    "submitted",
    "claimed",
    "succeeded",
    "retried",
    "failed",
    "dead",
    "cancelled",
    "expired",
    "released",
)
_ALWAYS = frozenset({"submitted", "claimed", "succeeded", "failed", "dead"})
_LATE_SECONDS = 5.0


def _paused(row: Mapping[str, Any]) -> str | None:
    return ", ".join(pause["task_type"] or "all of it" for pause in row["pauses"]) or None


_POOLS = (
    Column("POOL", "agent_type"),
    Column("WORKERS", "workers"),
    Column("RUNNING", lambda row: f"{row['running']}/{row['slots']}"),
    Column("QUEUED", queued),
    Column("P0 P1 P2 P3", by_priority),
    Column("OLDEST", oldest),
    Column("PAUSED", _paused, may_shrink=True),
)
_WORKERS = (
    Column("WORKER", "agent_id"),
    Column("RUNNING", lambda row: f"{row['running']}/{row['concurrency']}"),
    Column("SEEN", "last_seen_at", is_age=True),
    Column("ALIVE", lambda row: "yes" if row["is_alive"] else "no"),
    Column("HOST", lambda row: f"{row['host']}:{row['pid']}", may_shrink=True, spare=2),
    Column("VERSION", "version", spare=1),
)


def write(snapshot: Snapshot) -> None:
    """Write it as text, for pipes."""
    text(_title(snapshot))
    text(daemons(snapshot))
    heading("tasks")
    _write_strip(snapshot["states"], lambda count: f"{count:,}")
    heading("per second")
    _write_strip(snapshot["per_second"], _rate)
    text(means(snapshot))
    for title, columns in (("pools", _POOLS), ("workers", _WORKERS)):
        if snapshot[title]:
            heading(title)
            table(snapshot[title], columns, now=snapshot["at"])


def _write_strip(values: Mapping[str, Any], shown: Callable[[Any], str]) -> None:
    cells = {name: shown(value) for name, value in values.items()}
    table([cells], [Column(name.upper(), name) for name in cells])


def screen(snapshot: Snapshot | None, error: str | None) -> RenderableType:
    """Return the picture; with an `error`, the snapshot is old."""
    parts: list[RenderableType] = []
    if error is not None:
        parts.append(Text(f"this is old: {safe(error)}", style="bold red"))
    if snapshot is not None:
        style = "bold red" if is_late(snapshot) else "bright_black"
        states = {name: f"{count:,}" for name, count in snapshot["states"].items()}
        rates = snapshot["per_second"]
        parts += [
            Text(_title(snapshot), style="bold").append("  (q quits)", style="bright_black"),
            Text(daemons(snapshot), style=style),
            Text(""),
            _strip(states),
            Text(""),
            _strip(
                {f"{name}/s": _rate(rates[name]) for name in _RATES if name in _ALWAYS or rates[name] > 0}
            ),
            Text(means(snapshot), style="bright_black"),
            Text(""),
            _table(snapshot["pools"], _POOLS, snapshot, snapshot["has_more_pools"]),
            Text(""),
            _table(snapshot["workers"], _WORKERS, snapshot, snapshot["has_more_workers"]),
        ]
    return Group(*parts)


def is_late(snapshot: Snapshot) -> bool:
    """Return whether a daemon is missing or late."""
    status = snapshot["daemons"]
    lags = ("lag_seconds", "uncounted_seconds", "overdue_seconds", "lapsed_seconds")
    has_leaders = status["relay_has_leader"] and status["stats_has_leader"]
    return not has_leaders or max(status[name] for name in lags) > _LATE_SECONDS


def daemons(snapshot: Snapshot) -> str:
    """Return the lags of the daemons, in a line."""
    status = snapshot["daemons"]
    behind, uncounted = lasted(status["lag_seconds"]), lasted(status["uncounted_seconds"])
    parts = [
        f"relay {behind} behind" if status["relay_has_leader"] else "no relay leads",
        f"stats {uncounted} behind" if status["stats_has_leader"] else "no stats leader: counts are old",
    ]
    if status["lapsed_seconds"] > _LATE_SECONDS:
        parts.append(f"a lease expired {lasted(status['lapsed_seconds'])} ago")
    if status["overdue_seconds"] > _LATE_SECONDS:
        parts.append(f"a task is due since {lasted(status['overdue_seconds'])}")
    return ", ".join(parts)


def means(snapshot: Snapshot) -> str:
    """Return how long tasks wait and run, in a line."""
    mean, wait = snapshot["means"], snapshot["oldest_seconds"]
    waits = "nothing is queued" if wait is None else f"the oldest queued task has waited {lasted(wait)}"
    queue, run = _seconds(mean["queue_seconds"]), _seconds(mean["run_seconds"])
    return f"on average {queue} in the queue, {run} running; {waits}"


def _title(snapshot: Snapshot) -> str:
    running, slots = (sum(pool[name] for pool in snapshot["pools"]) for name in ("running", "slots"))
    return (
        f"grns top  {safe(snapshot['workspace'])}  {snapshot['at']:%Y-%m-%d %H:%M:%S}Z"
        f"  {snapshot['total']:,} tasks, {running:,} of {slots:,} slots taken"
    )


def _strip(shown: Mapping[str, str]) -> Table:
    """Return names above values, side by side."""
    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in shown:
        style = STYLES.get(name.removesuffix("/s"), "")
        drawn.add_column(name, justify="right", header_style="bright_black", style=style)
    drawn.add_row(*shown.values())
    return drawn


def _table(
    rows: Sequence[Mapping[str, Any]], columns: Sequence[Column], snapshot: Snapshot, has_more: bool
) -> Table:
    drawn, _ = rich_table(rows, columns, room=None, now=snapshot["at"])
    if has_more:
        drawn.add_row(Text("…"))
    return drawn


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _seconds(seconds: float | None) -> str:
    return "-" if seconds is None else lasted(seconds)
