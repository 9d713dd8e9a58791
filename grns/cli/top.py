"""`grns top`: a snapshot of the workspace, on a whole terminal or as text."""

from __future__ import annotations

import asyncio
import os
import sys
import termios
import tty
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from grns.cli.group import Command
from grns.cli.output import STYLES, Column, Output, output_option, print_rich, rich_table
from grns.cli.pool import by_priority, oldest, queued
from grns.cli.session import CliSession, with_session
from grns.diagnose.daemons import read_pulse
from grns.errors import UnavailableError
from grns.model.text import lasted, safe
from grns.stats import counts
from grns.stats.counts import StepCounts
from grns.tasks.pools import PoolState, list_pools
from grns.worker.registry import list_workers

Snapshot = Mapping[str, Any]

_MOST_POOLS, _MOST_WORKERS = 100, 200
_QUIT = ("q", "Q")
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
COUNTED = (
    "submitted", "claimed", "succeeded", "failed", "dead", "cancelled", "retried", "expired", "released",
    "redriven",
)  # fmt: skip
_SUMS = (*COUNTED, "queue_count", "queue_ms_sum", "run_count", "run_ms_sum")
_MINUTE = timedelta(minutes=1)
_WINDOW_SECONDS = 10.0


def _paused(pool: PoolState) -> str | None:
    return ", ".join(pause.task_type or "all of it" for pause in pool.pauses) or None


_POOLS = (
    Column("POOL", "agent_type"),
    Column("WORKERS", "workers"),
    Column("RUNNING", lambda row: f"{row.running}/{row.slots}"),
    Column("QUEUED", queued),
    Column("P0 P1 P2 P3", by_priority),
    Column("OLDEST", oldest),
    Column("PAUSED", _paused, may_shrink=True),
)
_WORKERS = (
    Column("WORKER", "agent_id"),
    Column("RUNNING", lambda row: f"{row.running}/{row.concurrency}"),
    Column("SEEN", "last_seen_at", is_age=True),
    Column("ALIVE", lambda worker: "yes" if worker.is_alive else "no"),
    Column("HOST", lambda row: f"{row.host}:{row.pid}", may_shrink=True, spare=2),
    Column("VERSION", "version", spare=1),
)


@click.command(cls=Command, examples=["grns top", "grns top --once -o json"])
@click.option(
    "--interval",
    "seconds",
    type=click.FloatRange(0.2, 3600),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Refresh interval in seconds.",
)
@click.option("--once", "is_once", is_flag=True, help="Print one snapshot and exit.")
@output_option
@with_session("read")
async def top(session: CliSession, out: Output, seconds: float, is_once: bool) -> None:
    """Show live status: tasks by status, rates, pools, workers and lags.

    Press q or Ctrl-C to quit. Without a terminal, or with -o json, it prints one snapshot.
    """
    if out.is_table and not is_once and sys.stdout.isatty():
        await _live(session, seconds)
    else:
        snapshot = await read_snapshot(session, FollowRate())
        out.record(snapshot, lambda: print_rich(picture(snapshot)))


async def _live(session: CliSession, seconds: float) -> None:
    ended, rates = asyncio.Event(), FollowRate()

    def press(key: str) -> None:
        if key in _QUIT:
            ended.set()

    snapshot: dict[str, Any] | None = await read_snapshot(session, rates)
    error: str | None = None
    with _keys(press), Live(console=Console(), screen=True, auto_refresh=False) as live:
        while not ended.is_set():
            live.update(picture(snapshot, error), refresh=True)
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await ended.wait()
            try:
                snapshot, error = await read_snapshot(session, rates), None
            except UnavailableError as unavailable:  # the last snapshot stays, marked as old
                error = str(unavailable)


@contextmanager
def _keys(on_key: Callable[[str], None]) -> Iterator[None]:
    """Call back for each key without showing it, and restore the terminal in the end."""
    if not sys.stdin.isatty():
        yield
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    loop = asyncio.get_running_loop()

    def read() -> None:
        pressed = os.read(descriptor, 64).decode("utf-8", "replace")
        if not pressed:  # the terminal is gone
            loop.remove_reader(descriptor)
        for key in pressed:
            on_key(key)

    tty.setcbreak(descriptor)  # Ctrl-C is a signal still
    loop.add_reader(descriptor, read)
    try:
        yield
    finally:
        loop.remove_reader(descriptor)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


async def read_snapshot(session: CliSession, rates: FollowRate) -> dict[str, Any]:
    """Return the status of the workspace; `rates` takes in what has been counted by now."""
    database, workspace = session.database, session.workspace
    now = await session.now()
    states = await counts.count_states(database, workspace=workspace)
    minutes = await counts.read_minutes(
        database, workspace=workspace, since=rates.since(now), until=now + timedelta(minutes=1)
    )
    rates.note(minutes, now)
    pools = await list_pools(database, workspace=workspace, limit=_MOST_POOLS)
    workers = await list_workers(database, workspace=workspace, limit=_MOST_WORKERS)
    ages = [pool.oldest_seconds for pool in pools.rows if pool.oldest_seconds is not None]
    return {
        "at": now,
        "workspace": workspace,
        "states": states,
        "total": sum(states.values()),
        "per_second": rates.rates(),
        "means": rates.means(),
        "oldest_seconds": max(ages, default=None),
        "pools": pools.rows,
        "has_more_pools": pools.next_cursor is not None,
        "workers": workers.rows,
        "has_more_workers": workers.next_cursor is not None,
        "daemons": asdict(await read_pulse(database)),
    }


class FollowRate:
    """Rates from repeated reads of the counts per minute. After one read, those of the last whole minute."""

    def __init__(self) -> None:
        self._minutes: dict[datetime, StepCounts] = {}
        self._totals: deque[tuple[datetime, dict[str, int]]] = deque()

    @staticmethod
    def since(now: datetime) -> datetime:
        """Return the first minute to read."""
        return now.replace(second=0, microsecond=0) - 2 * _MINUTE

    def note(self, rows: Sequence[StepCounts], now: datetime) -> None:
        """Add the counts of minutes, as they are now."""
        self._minutes |= {row.at: row for row in rows}
        total = {name: sum(getattr(row, name) for row in self._minutes.values()) for name in _SUMS}
        self._totals.append((now, total))
        while len(self._totals) > 2 and (now - self._totals[1][0]).total_seconds() >= _WINDOW_SECONDS:
            self._totals.popleft()

    def rates(self) -> dict[str, float]:
        """Return the rates per second."""
        seconds, sums = self._recent()
        return {name: sums[name] / seconds for name in COUNTED}

    def means(self) -> dict[str, float | None]:
        """Return the mean times in the queue and running, in seconds; None without a task."""
        _, sums = self._recent()
        return {
            "queue_seconds": _mean(sums["queue_ms_sum"], sums["queue_count"]),
            "run_seconds": _mean(sums["run_ms_sum"], sums["run_count"]),
        }

    def _recent(self) -> tuple[float, dict[str, int]]:
        """Return the latest counts, and the seconds that they cover."""
        if not self._totals:
            return 60.0, dict.fromkeys(_SUMS, 0)
        (first_at, first), (last_at, last) = self._totals[0], self._totals[-1]
        seconds = (last_at - first_at).total_seconds()
        if seconds > 0:
            return seconds, {name: last[name] - first[name] for name in _SUMS}
        minute = self._minutes.get(last_at.replace(second=0, microsecond=0) - _MINUTE)
        return 60.0, {name: getattr(minute, name, 0) for name in _SUMS}


def _mean(milliseconds: int, count: int) -> float | None:
    return milliseconds / count / 1000 if count else None


def picture(snapshot: Snapshot | None, error: str | None = None) -> RenderableType:
    """Return what is shown; with an `error`, the snapshot is old."""
    parts: list[RenderableType] = []
    if error is not None:
        parts.append(Text(f"this is old: {safe(error)}", style="bold red"))
    if snapshot is not None:
        states = {name: f"{count:,}" for name, count in snapshot["states"].items()}
        rates = {name: snapshot["per_second"][name] for name in _RATES}
        parts += [
            Text(_title(snapshot), style="bold"),
            Text(daemons(snapshot), style="bold red" if is_late(snapshot) else "bright_black"),
            Text(""),
            _strip(states),
            Text(""),
            _strip({f"{name}/s": _rate(rate) for name, rate in rates.items() if name in _ALWAYS or rate > 0}),
            Text(means(snapshot), style="bright_black"),
        ]
        for name, columns in (("pools", _POOLS), ("workers", _WORKERS)):
            drawn, _ = rich_table(snapshot[name], columns, room=None, now=snapshot["at"])
            if snapshot[f"has_more_{name}"]:
                drawn.add_row(Text("…"))
            parts += [Text(""), drawn]
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
    lag, uncounted = lasted(status["lag_seconds"]), lasted(status["uncounted_seconds"])
    parts = [
        f"relay lag {lag}" if status["relay_has_leader"] else "no relay leader",
        f"stats lag {uncounted}" if status["stats_has_leader"] else "no stats leader: counts are old",
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
    running, slots = (sum(getattr(pool, name) for pool in snapshot["pools"]) for name in ("running", "slots"))
    return (
        f"grns top  {safe(snapshot['workspace'])}  {snapshot['at']:%Y-%m-%d %H:%M:%S}Z"
        f"  {snapshot['total']:,} tasks, {running:,} of {slots:,} slots taken"
    )


def _strip(shown: Mapping[str, str]) -> Table:
    """Return a table of one row."""
    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in shown:
        style = STYLES.get(name.removesuffix("/s"), "")
        drawn.add_column(name, justify="right", header_style="bright_black", style=style)
    drawn.add_row(*shown.values())
    return drawn


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _seconds(seconds: float | None) -> str:
    return "-" if seconds is None else lasted(seconds)
