"""The budget watch: notes what was used of budgets, tells which are used up, and pauses their pools."""

from __future__ import annotations

from dataclasses import dataclass

from grns.nats import JetStream
from grns.postgres import audit_log
from grns.postgres.database import Connection, Database, Row, run
from grns.runtime.service import PeriodicService
from grns.tasks import pauses
from grns.tasks.pause_pools import tell_broker
from grns.tasks.pauses import Pause

_EXCEEDED = (
    "name",
    "agent_type",
    "period",
    "action",
    "begins_on",
    "used_cost",
    "max_cost",
    "used_tokens",
    "max_tokens",
)


@dataclass(slots=True, kw_only=True, eq=False)
class BudgetWatch(PeriodicService):
    """Looks at all budgets every two seconds; of several watches, one works at a time."""

    database: Database
    transport: JetStream
    name: str = "budget_watch"
    tick_seconds: float = 1.0
    idle_seconds: float = 2.0

    async def tick(self) -> float:
        """Look at the budgets that are due; only whether there are any, while there are none."""
        if not any(row["has_budgets"] for row in await self.database.run("has_budgets")):
            return self.idle_seconds
        await tell_broker(self.transport, await look_at_budgets(self.database))
        return self.tick_seconds


async def look_at_budgets(database: Database) -> list[tuple[Pause, bool]]:
    """Look at the budgets that are due. Returns pauses of pools, each with whether it has begun or ended."""
    async with database.transaction() as connection:
        rows = await run(connection, "has_budgets")
        if not rows or not rows[0]["has_budgets"]:
            return []
        return [
            (pause, row["what"] == "begun")
            for row in await run(connection, "look_at_budgets")
            if (pause := await _note(connection, row)) is not None
        ]


async def _note(connection: Connection, row: Row) -> Pause | None:
    """Log what has come to be, and return the pause that has begun or ended."""
    if row["what"] == "exceeded":
        payload = {**row, "name": row["budget"]}
        await audit_log.note(
            connection, workspace=row["workspace"], kind="evt.budget.exceeded", actor=None,
            payload={field: payload[field] for field in _EXCEEDED},
        )  # fmt: skip
        return None
    pause = Pause(
        workspace=row["workspace"], agent_type=row["agent_type"], task_type=None, paused_at=row["paused_at"],
        paused_by="grns", reason=row["reason"], until=None, budget=row["budget"], left_seconds=None,
    )  # fmt: skip
    await (pauses.note_begin if row["what"] == "begun" else pauses.note_end)(connection, None, pause)
    return pause
