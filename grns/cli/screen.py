"""What `grns top` looks like: on a whole terminal, and as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from grns.cli.output import Column, heading, table, text, when
from grns.text import lasted, safe

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

Found = Mapping[str, Any]

_COLORS = {
    "waiting": "blue",
    "queued": "yellow",
    "running": "cyan",
    "retry_wait": "magenta",
    "succeeded": "green",
    "failed": "red",
    "dead": "bold red",
    "cancelled": "bright_black",
}
# In the order in which a task comes to them; what hardly ever happens is shown where it does.
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


def write(found: Found) -> None:
    """Write it as text, for pipes."""
    text(_title(found))
    text(daemons(found))
    heading("tasks")
    table([found["states"]], [Column(name.upper(), _of(name)) for name in found["states"]])
    heading("per second")
    table([found["per_second"]], [Column(name.upper(), _rate_of(name)) for name in found["per_second"]])
    text(means(found))
    if found["pools"]:
        heading("pools")
        table(found["pools"], _pool_columns())
    if found["workers"]:
        heading("workers")
        table(found["workers"], _worker_columns(found))


def screen(found: Found | None, trouble: str | None) -> RenderableType:
    """Return it as one picture."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = []
    if trouble is not None:
        parts.append(Text(f"this is old: {safe(trouble)}", style="bold red"))
    if found is not None:
        style = "bold red" if is_late(found) else "bright_black"
        parts += [
            Text(_title(found), style="bold").append("  (q ends)", style="bright_black"),
            Text(daemons(found), style=style),
            Text(""),
            _states(found),
            Text(""),
            _rates(found),
            Text(means(found), style="bright_black"),
            Text(""),
            _table(found["pools"], _pool_columns(), found["has_more_pools"]),
            Text(""),
            _table(found["workers"], _worker_columns(found), found["has_more_workers"]),
        ]
    return Group(*parts)


def is_late(found: Found) -> bool:
    """Say whether something of the daemons is to be looked at."""
    said = found["daemons"]
    late = max(
        said["lag_seconds"], said["uncounted_seconds"], said["overdue_seconds"], said["lapsed_seconds"]
    )
    return not said["relay_has_leader"] or not said["stats_has_leader"] or late > _LATE_SECONDS


def daemons(found: Found) -> str:
    """Return how far the daemons are, in a line."""
    said = found["daemons"]
    relay = f"relay {lasted(said['lag_seconds'])} behind" if said["relay_has_leader"] else "no relay leads"
    behind = lasted(said["uncounted_seconds"])
    counter = f"counter {behind} behind" if said["stats_has_leader"] else "no counter leads: counts are old"
    parts = [relay, counter]
    if said["lapsed_seconds"] > _LATE_SECONDS:
        parts.append(f"a lease is over since {lasted(said['lapsed_seconds'])}")
    if said["overdue_seconds"] > _LATE_SECONDS:
        parts.append(f"a task is due since {lasted(said['overdue_seconds'])}")
    return ", ".join(parts)


def means(found: Found) -> str:
    """Return how long tasks wait and run, in a line."""
    said = found["means"]
    queue, run, oldest = said["queue_seconds"], said["run_seconds"], found["oldest_seconds"]
    waits = (
        "nothing is queued" if oldest is None else f"the oldest that is queued has waited {lasted(oldest)}"
    )
    return f"in the queue {_long(queue)} on average, run {_long(run)}; {waits}"


def _title(found: Found) -> str:
    running, slots = (sum(pool[name] for pool in found["pools"]) for name in ("running", "slots"))
    return (
        f"grns top  {safe(found['workspace'])}  {found['at']:%Y-%m-%d %H:%M:%S}Z  {found['total']:,} tasks,"
        f" {running:,} of {slots:,} slots taken"
    )


def _states(found: Found) -> Table:
    shown = {name: f"{count:,}" for name, count in found["states"].items()}
    return _strip(shown, _COLORS)


def _rates(found: Found) -> Table:
    rates = found["per_second"]
    shown = {f"{name}/s": _rate(rates[name]) for name in _RATES if name in _ALWAYS or rates[name] > 0}
    return _strip(shown, {f"{name}/s": color for name, color in _COLORS.items()})


def _strip(shown: Mapping[str, str], colors: Mapping[str, str]) -> Table:
    """Return names above values, side by side."""
    from rich.table import Table

    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in shown:
        made.add_column(name, justify="right", header_style="bright_black", style=colors.get(name, ""))
    made.add_row(*shown.values())
    return made


def _table(rows: Sequence[Found], columns: Sequence[Column], has_more: bool) -> Table:
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        made.add_column(column.title, header_style="bold", no_wrap=True, overflow="ellipsis")
    for row in rows:
        # As text and no markup: names are users' own.
        made.add_row(*(Text(safe(str("-" if (cell := one.cell(row)) is None else cell))) for one in columns))
    if has_more:
        made.add_row(Text("…"))
    return made


def _pool_columns() -> list[Column]:
    return [
        Column("POOL", lambda row: row["agent_type"]),
        Column("WORKERS", lambda row: row["workers"]),
        Column("RUNNING", lambda row: f"{row['running']}/{row['slots']}"),
        Column("QUEUED", _queued),
        Column("P0 P1 P2 P3", lambda row: " ".join(map(_queued, row["lanes"]))),
        Column("OLDEST", lambda row: _long(row["oldest_seconds"])),
        Column("PAUSED", _paused, may_shrink=True),
    ]


def _worker_columns(found: Found) -> list[Column]:
    return [
        Column("WORKER", lambda row: row["agent_id"]),
        Column("RUNNING", lambda row: f"{row['running']}/{row['concurrency']}"),
        Column("SEEN", lambda row: when(row["last_seen_at"], found["at"])),
        Column("ALIVE", lambda row: "yes" if row["is_alive"] else "no"),
        Column("HOST", lambda row: f"{row['host']}:{row['pid']}", may_shrink=True, spare=2),
        Column("VERSION", lambda row: row["version"], spare=1),
    ]


def _queued(row: Found) -> str:
    return f"{row['queued']}{'+' if row['has_more'] else ''}"


def _paused(row: Found) -> str | None:
    return ", ".join(pause["task_type"] or "all of it" for pause in row["pauses"]) or None


def _of(name: str) -> Any:
    return lambda row: f"{row[name]:,}"


def _rate_of(name: str) -> Any:
    return lambda row: _rate(row[name])


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _long(seconds: float | None) -> str:
    return "-" if seconds is None else lasted(seconds)
