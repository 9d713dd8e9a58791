"""A line of the log of a task: what its handler has logged, or what became of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, get_args

Level = Literal["DEBUG", "INFO", "WARN", "ERROR", "CRITICAL"]
LEVELS: dict[str, int] = {name: 10 * place for place, name in enumerate(get_args(Level), 1)}
"""The levels, and their numbers as of Python's `logging`."""
NAMES: dict[int, Level] = {10 * place: name for place, name in enumerate(get_args(Level), 1)}
LONGEST_MESSAGE = 2000
MOST_FIELD_BYTES = 4096
MOST_OF_ATTEMPT = 1000
"""How many lines of an attempt are kept, and how many more from WARN on: as in record_task_lines.sql."""
MOST_UNSENT = 500


@dataclass(frozen=True, slots=True)
class Line:
    """A line that a handler has logged. `at` is of the clock `time.monotonic`, `fields` a JSON text."""

    number: int
    at: float
    level: int
    message: str
    fields: str | None


@dataclass(frozen=True, slots=True)
class TaskLogLine:
    """A line of the log of a task: `source` is `grns` if it says what became of the task, or `handler`."""

    at: datetime
    level: Level
    source: Literal["grns", "handler"]
    attempt: int | None
    message: str
    fields: dict[str, Any] | None
