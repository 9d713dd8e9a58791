"""What tests of the follower share: following to the end of the log."""

from __future__ import annotations

from typing import cast

from grns.nats import JetStream
from grns.postgres.database import Database
from grns.runtime.leader import LeaderLease
from grns.workflows.follower import TaskFollower
from tests.support.store import fetch


async def begin_here(database: Database) -> None:
    """Let everything in the log so far be followed: what tests before have left is none of ours."""
    await fetch(database, "update grns.follow_cursor set low = nextval('grns.events_seq'), followed = '{}'")


def follower(database: Database, owner: str = "test") -> TaskFollower:
    """Return a follower, which sends no hints."""
    lease = LeaderLease("follower", owner, 60.0)
    return TaskFollower(
        database=database, transport=cast("JetStream", None), lease=lease, emit=lambda _: None
    )


async def lead(database: Database, owner: str = "test") -> TaskFollower:
    """Take the lead, whoever has it."""
    leading = follower(database, owner)
    while not await leading.lead():
        await fetch(database, "update grns.leases set until = '-infinity' where name = 'follower'")
    return leading


async def follow(database: Database, leading: TaskFollower | None = None, rows: int = 2000) -> TaskFollower:
    """Follow to the end of the log, also what following has written there."""
    leading = leading or await lead(database)
    before = None
    # What was locked before is acted on without new rows, and is one itself.
    while (now := (leading.low, await fetch(database, "select max(seq) from grns.events"))) != before:
        before = now
        while await leading.step(rows):
            pass
    return leading
