"""Renew the leases of attempts, many in one statement. The heartbeat process calls it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from grns.model.subjects import DEFAULT_WORKSPACE
from grns.postgres.database import Database, Session


@dataclass(frozen=True, slots=True)
class HeldLease:
    """A lease that a worker holds."""

    id: str
    attempt: int
    lease_id: UUID
    workspace: str = DEFAULT_WORKSPACE


@dataclass(frozen=True, slots=True)
class RenewResult:
    """`renewed`, `locked` (another transaction holds the row: retry) or `lost`."""

    verdict: str
    is_cancel_requested: bool


async def renew(
    database: Database | Session, leases: Sequence[HeldLease], lease_seconds: float
) -> list[RenewResult]:
    """Renew leases in one statement; return the results in the order of `leases`."""
    rows = await database.run(
        "renew", [lease.id for lease in leases], [lease.attempt for lease in leases],
        [lease.lease_id for lease in leases], lease_seconds, [lease.workspace for lease in leases],
    )  # fmt: skip
    verdicts = {row["place"]: RenewResult(row["verdict"], row["is_cancel_requested"]) for row in rows}
    return [verdicts[place] for place in range(1, len(leases) + 1)]
