"""What tasks have used: of one task, and summed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, date, datetime, timedelta

from grns.errors import InvalidInputError
from grns.model.usage import USAGE_KEYS, UsageItem, UsageKey, UsageSum
from grns.postgres.database import Database, Session

_BY_DAY: tuple[UsageKey, ...] = ("day",)
_MONTH = timedelta(days=30)


class UsageRecords:
    """What the tasks of a workspace have used: `client.usage`."""

    def __init__(self, database: Database | Session, workspace: str) -> None:
        self._database = database
        self._workspace = workspace

    async def of(self, task_id: str) -> Sequence[UsageItem]:
        """Return what the attempts of a task have used, also those that have failed; 1,000 items at most."""
        return await self._database.fetch(UsageItem, "list_usage", task_id, self._workspace)

    async def sum(
        self,
        *,
        by: Collection[UsageKey] = _BY_DAY,
        since: date | None = None,
        until: date | None = None,
    ) -> Sequence[UsageSum]:
        """Return what was used, the latest days first, and then what costs most.

        Args:
            by: `day`, `pool`, `type` and `model`: some of them; without any, one sum.
            since: the first day, in UTC. Defaults to 30 days before the last one.
            until: the last day. Defaults to today.

        Raises:
            InvalidInputError: `bad_usage`.

        Example:
            for row in await client.usage.sum(by=["day", "model"]):
                print(row.day, row.model, row.cost)
        """
        if unknown := set(by) - set(USAGE_KEYS):
            raise InvalidInputError("bad_usage", f"by is of {', '.join(USAGE_KEYS)}, not {min(unknown)!r}")
        last = until or datetime.now(UTC).date()
        first = since or last - _MONTH
        if first > last:
            raise InvalidInputError("bad_usage", "nothing lies there: it has to begin before it ends")
        return await self._database.fetch(UsageSum, "sum_usage_by", self._workspace, first, last, list(by))
