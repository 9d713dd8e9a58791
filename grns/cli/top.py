"""`grns top`."""

from __future__ import annotations

import asyncio
import os
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import timedelta
from typing import Any

import click
from rich.console import Console
from rich.live import Live

from grns.cli.group import Command
from grns.cli.output import Output, output_option
from grns.cli.pace import FollowRate
from grns.cli.screen import screen, write
from grns.cli.session import CliSession, with_session
from grns.diagnose.daemons import read_pulse
from grns.errors import UnavailableError
from grns.stats import counts
from grns.tasks.pools import list_pools
from grns.worker.registry import list_agents

_MOST_POOLS, _MOST_WORKERS = 100, 200
_QUIT = ("q", "Q")


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
        out.record(snapshot, lambda: write(snapshot))


async def _live(session: CliSession, seconds: float) -> None:
    ended, rates = asyncio.Event(), FollowRate()

    def press(key: str) -> None:
        if key in _QUIT:
            ended.set()

    snapshot: dict[str, Any] | None = await read_snapshot(session, rates)
    error: str | None = None
    with _keys(press), Live(console=Console(), screen=True, auto_refresh=False) as live:
        while not ended.is_set():
            live.update(screen(snapshot, error), refresh=True)
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
    workers = await list_agents(database, workspace=workspace, limit=_MOST_WORKERS)
    ages = [pool["oldest_seconds"] for pool in pools.rows if pool["oldest_seconds"] is not None]
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
