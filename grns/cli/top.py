"""`grns top`: how it goes, live: tasks by state, rates, pools, workers, and how far the daemons are."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from grns.cli.group import Command
from grns.cli.output import Output, output_option

if TYPE_CHECKING:
    from grns.cli.pace import FollowRate
    from grns.cli.session import CliSession

_MOST_POOLS, _MOST_WORKERS = 100, 200
_QUIT = ("q", "Q")


@click.command(cls=Command)
@click.option(
    "--every",
    "seconds",
    type=click.FloatRange(0.2, 3600),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Refresh interval in seconds.",
)
@click.option("--once", "is_once", is_flag=True, help="Print one snapshot and exit.")
@output_option
def top(out: Output, seconds: float, is_once: bool) -> None:
    """Show live status: tasks by status, rates, pools, workers and lags.

    Press q or Ctrl-C to quit. Without a terminal, or with -o json, it prints one snapshot.
    """
    is_live = out.is_table and not is_once and sys.stdout.isatty()
    asyncio.run(_live(seconds) if is_live else _once(out))


async def _once(out: Output) -> None:
    from grns.cli.pace import FollowRate
    from grns.cli.screen import write
    from grns.cli.session import reading

    async with reading() as session:
        found = await look(session, FollowRate())
    out.record(found, lambda: write(found))


async def _live(seconds: float) -> None:
    from rich.console import Console
    from rich.live import Live

    from grns.cli.keyboard import keys
    from grns.cli.pace import FollowRate
    from grns.cli.screen import screen
    from grns.cli.session import reading
    from grns.errors import UnavailableError

    ended, pace = asyncio.Event(), FollowRate()

    def hear(key: str) -> None:
        if key in _QUIT:
            ended.set()

    async with reading() as session:
        found: dict[str, Any] | None = await look(session, pace)
        trouble: str | None = None
        with keys(hear), Live(console=Console(), screen=True, auto_refresh=False) as live:
            while not ended.is_set():
                live.update(screen(found, trouble), refresh=True)
                try:
                    async with asyncio.timeout(seconds):
                        await ended.wait()
                except TimeoutError:
                    pass
                try:
                    found, trouble = await look(session, pace), None
                except UnavailableError as error:  # what was seen last stays, and is told to be old
                    trouble = str(error)


async def look(session: CliSession, pace: FollowRate) -> dict[str, Any]:
    """Return how it goes in the workspace; rates are from `pace`, which takes in what is counted by now."""
    from grns.dead_letters import listing
    from grns.diagnose.daemons import read_pulse
    from grns.stats import counts as count
    from grns.tasks.pools import list_pools
    from grns.worker.registry import list_agents

    database, workspace = session.database, session.workspace
    now = await listing.now(database)
    states = await count.count_states(database, workspace=workspace)
    minutes = await count.read_minutes(
        database, workspace=workspace, since=pace.since(now), until=now + timedelta(minutes=1)
    )
    pace.note(minutes, now)
    pools = await list_pools(database, workspace=workspace, limit=_MOST_POOLS)
    workers = await list_agents(database, workspace=workspace, limit=_MOST_WORKERS)
    ages = [pool["oldest_seconds"] for pool in pools.rows if pool["oldest_seconds"] is not None]
    return {
        "at": now,
        "workspace": workspace,
        "states": states,
        "total": sum(states.values()),
        "per_second": pace.rates(),
        "means": pace.means(),
        "oldest_seconds": max(ages, default=None),
        "pools": pools.rows,
        "has_more_pools": pools.next_cursor is not None,
        "workers": workers.rows,
        "has_more_workers": workers.next_cursor is not None,
        "daemons": asdict(await read_pulse(database)),
    }
