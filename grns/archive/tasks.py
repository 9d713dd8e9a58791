"""Archives of ended tasks: a line has a task and its rows in other tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime

from grns.archive.archive import TASKS, Archive, ArchivedRow, new_name, write
from grns.archive.place import ArchivePlace
from grns.postgres.database import Row

TABLES = (
    "needs",
    "waits",
    "steps",
    "signals",
    "questions",
    "progress",
    "task_lines",
    "labels",
    "blob_refs",
    "usage",
)
"""Tables with rows of a task, besides `tasks`, that are archived with it."""


async def write_tasks(place: ArchivePlace, rows: Iterable[Row]) -> Archive | None:
    """Write what `delete_tasks.sql` has deleted to an archive; None if it has deleted nothing.

    Call it in the transaction that deletes: what is not written is not deleted then.
    """
    parts: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    tasks: list[Row] = []
    for row in rows:
        parts[row["owner"]][row["name"]].append(row["document"])
        if row["name"] == TASKS:
            tasks.append(row)
    if not tasks:
        return None
    tasks.sort(key=lambda row: row["owner"])
    lines = [
        ArchivedRow(row["workspace"], row["owner"], row["at"], _line(row["owner"], parts[row["owner"]]))
        for row in tasks
    ]
    name = new_name(TASKS, lines[0].key, lines[-1].key, datetime.now(UTC))
    return await write(place, name, TASKS, lines)


def _line(task_id: str, tables: dict[str, list[str]]) -> str:
    """Return the line of a task: its rows by their tables, each as Postgres writes it."""
    inner = ",".join(f'"{name}":[{",".join(documents)}]' for name, documents in tables.items())
    return f'{{"id":"{task_id}",{inner}}}'
