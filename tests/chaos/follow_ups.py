"""Follow-ups in the storm: each end of a task that has some is followed once, by a task that tells of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import asyncpg

FOLLOW_UP = "followed"
"""The type of these tasks."""
KEY = "follow-up:"
# An end that the follower has not read of yet is none.
_ENDS = f"""
    with ends as (
        select e.message_id, e.task_id, e.kind
        from grns.events e
        join grns.tasks t on t.id = e.task_id
        where e.seq <= (select c.low from grns.follow_cursor c) and (
            t.task_type = 'doomed' and e.kind in ('evt.task.failed', 'evt.task.dead')
            or t.task_type = 'ledger' and e.kind = 'evt.task.completed')
            and exists (
                select from grns.task_types k
                where k.agent_type = t.agent_type and k.task_type = t.task_type and k.follow_ups <> '[]')
    ),
    found as (
        select t.id, t.payload ->> 'task_id' as told,
            split_part(t.idempotency_key, ':', 2)::uuid as message_id
        from grns.tasks t where t.task_type = '{FOLLOW_UP}' and t.idempotency_key like '{KEY}%'
    )
    select e.task_id, e.kind, f.id, f.told
    from ends e full join found f on f.message_id = e.message_id
"""


class Followed:
    """What became of ends that are to be followed."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    async def read(self, connection: asyncpg.Connection) -> None:
        """Read the tables."""
        self.rows = [dict(row) for row in await connection.fetch(_ENDS)]

    def judge(self) -> Iterator[str]:
        """Say which ends are not followed once, and which follow-ups have no end."""
        seen: set[str] = set()
        for row in self.rows:
            if row["id"] is None:
                yield f"{row['task_id']}: nothing follows {row['kind']}"
            elif row["task_id"] is None:
                yield f"{row['id']} follows {row['told']}, which has no such end"
            elif row["told"] != row["task_id"] or row["id"] in seen:
                yield f"{row['id']} follows {row['task_id']}, and tells of {row['told']}"
            seen.add(row["id"])
