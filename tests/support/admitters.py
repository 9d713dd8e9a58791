"""What tests of limits share: limits to put, and admitting until nothing more is to be admitted."""

from __future__ import annotations

from typing import Any, cast

from grns.limits import service
from grns.limits.admitter import TaskAdmitter
from grns.limits.model import TaskLimit, limit_spec
from grns.nats import JetStream
from grns.postgres.database import Database
from grns.runtime.leader import LeaderLease
from tests.support.store import fetch

WHO = {"workspace": "default", "actor": "tests"}


async def put_limit(database: Database, name: str = "tenant", **fields: Any) -> TaskLimit:
    """Create a limit of the pool of tests."""
    spec = limit_spec(name=name, **({"agent_type": "worker"} | fields))
    return await service.put(database, spec, **WHO)


def admitter(database: Database, owner: str = "test") -> TaskAdmitter:
    """Return an admitter, which sends no hints."""
    lease = LeaderLease("admitter", owner, 60.0)
    return TaskAdmitter(
        database=database, transport=cast("JetStream", None), lease=lease, emit=lambda _: None
    )


async def lead(database: Database, owner: str = "test") -> TaskAdmitter:
    """Take the lead, whoever has it."""
    leading = admitter(database, owner)
    while not await leading.lead():
        await fetch(database, "update grns.leases set until = '-infinity' where name = 'admitter'")
    return leading


async def admit(database: Database, leading: TaskAdmitter | None = None) -> TaskAdmitter:
    """Follow to the end of the log, and admit what may be."""
    leading = leading or await lead(database)
    before = -1
    while await leading.step(2000) or leading.has_work or leading.low != before:
        before = leading.low
    return leading
