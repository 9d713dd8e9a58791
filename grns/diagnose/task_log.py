"""The log of a task: what became of it, and what its handlers have logged, in one order."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from grns.diagnose.explain.history import story
from grns.diagnose.explain.read import read_story
from grns.errors import InvalidInputError, NotFoundError
from grns.model.json import loads_stored
from grns.model.log_line import LEVELS, NAMES, Level, TaskLogLine
from grns.postgres.database import Database, Session
from grns.tasks.read import tasks

MOST_LINES = 1000
_ERRORS = frozenset({"evt.task.dead", "evt.task.failed"})
_WARNINGS = frozenset(
    {
        "evt.task.retry_scheduled", "evt.task.lease_expired", "evt.task.released", "evt.task.cancelled",
        "evt.attempt.overdue", "evt.question.expired",
    }
)  # fmt: skip
_LEFT_OUT = frozenset({"dlq.task.dead", "dlq.task.failed", "cmd.task.execute"})  # the event before says it


async def read_task_log(
    database: Database | Session, task_id: str, *, workspace: str, level: Level = "DEBUG", limit: int = 200
) -> list[TaskLogLine]:
    """Return the latest lines of a task's log from a level on, in order.

    What became of the task is INFO, WARN if an attempt was lost or failed, and ERROR if the task did.

    Raises:
        NotFoundError: there is no such task in this workspace.
        InvalidInputError: there is no such level.
    """
    if level not in tuple(LEVELS):
        raise InvalidInputError("bad_level", f"level is one of {', '.join(LEVELS)}, not {level!r}")
    least = LEVELS[level]
    rows = await database.run("read_task_lines", task_id, workspace, least, limit)
    at = datetime.min.replace(tzinfo=UTC)
    lines = [
        TaskLogLine(
            # In the order of its attempt: clocks and ways of two reports differ a little.
            at := max(at, row["at"]), NAMES[row["level"]], "handler", row["attempt"], row["message"],
            None if row["fields"] is None else loads_stored(row["fields"]),
        )
        for row in reversed(rows)
    ]  # fmt: skip
    history = [one for one in await read_story(database, task_id, workspace=workspace) if _is_told(one)]
    lines += [
        TaskLogLine(step.at, _level(step.kind), "grns", step.attempt, step.sentence, None)
        for step in story(history)
        if LEVELS[_level(step.kind)] >= least
    ]
    if not lines and not await tasks(database, [task_id], workspace):
        raise NotFoundError(f"there is no task {task_id} in workspace {workspace}")
    # Sorting is stable: what was logged within a transition's moment stands before it.
    return sorted(lines, key=lambda line: line.at)[-limit:]


def _is_told(row: dict[str, Any]) -> bool:
    return row["kind"] not in _LEFT_OUT


def _level(kind: str) -> Level:
    return "ERROR" if kind in _ERRORS else "WARN" if kind in _WARNINGS else "INFO"
