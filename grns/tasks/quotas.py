"""Quotas: how many tasks of a pool may be queued before submissions are refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from grns.errors import InvalidInputError
from grns.model import subjects
from grns.postgres import audit_log
from grns.postgres.database import Database, Session, run

_MOST = 100_000


@dataclass(frozen=True, slots=True)
class PoolQuota:
    """How many tasks of a pool may be queued. While as many are, it has been full since a time."""

    workspace: str
    agent_type: str
    max_queued: int
    full_since: datetime | None
    updated_at: datetime
    updated_by: str


async def put_quota(
    database: Database | Session, agent_type: str, max_queued: int | None, *, workspace: str, actor: str
) -> PoolQuota | None:
    """Set the quota of a pool, and return it; None takes it away, and returns what it was.

    Raises InvalidInputError: `bad_quota`.
    """
    subjects.token(agent_type, name="agent_type")
    if max_queued is not None and not (type(max_queued) is int and 1 <= max_queued <= _MOST):
        raise InvalidInputError("bad_quota", f"max_queued: 1 to {_MOST:,}, not {max_queued!r}")
    async with database.transaction() as connection:
        if max_queued is None:
            rows = await run(connection, "delete_quota", workspace, agent_type)
        else:
            rows = await run(connection, "put_quota", workspace, agent_type, max_queued, actor)
        if rows:
            await audit_log.note(
                connection, workspace=workspace, kind="evt.pool.quota_changed", actor=actor,
                payload={"agent_type": agent_type, "max_queued": max_queued},
            )  # fmt: skip
    return PoolQuota(**rows[0]) if rows else None


async def list_quotas(
    database: Database | Session, *, workspace: str, agent_types: Sequence[str] | None = None
) -> list[PoolQuota]:
    """Return the quotas of some pools, or of all."""
    named = None if agent_types is None else list(agent_types)
    return await database.fetch(PoolQuota, "list_quotas", workspace, named)
