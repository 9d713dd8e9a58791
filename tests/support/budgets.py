"""Usage that is noted, and budgets that are looked at, as often as a test wants."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from grns.maintenance import budget_watch
from grns.model.usage import usage_of
from grns.postgres.database import Database
from grns.tasks.pauses import Pause
from grns.worker.progress import ProgressStore, Report
from tests.support.harness import submit
from tests.support.store import WORKER, claim, fetch


async def note_usage(
    database: Database, *, pool: str = "worker", workspace: str = "default", **used: Any
) -> str:
    """Let an attempt of a pool use something, and return its task's id."""
    task_id = (await submit(database, agent_type=pool, workspace=workspace)).id
    taken = await claim(database, task_id, who=replace(WORKER, agent_type=pool, workspace=workspace))
    await ProgressStore(database, batch_limit=10).write(taken, Report(usage=(usage_of("a", **used),)))
    return task_id


async def look_at_budgets(database: Database) -> list[tuple[Pause, bool]]:
    """Look at all budgets, as the scheduler does every two seconds."""
    await fetch(database, "update grns.budgets set looked_at = now() - interval '3 seconds'")
    return await budget_watch.look_at_budgets(database)
