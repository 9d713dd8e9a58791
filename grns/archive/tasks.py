"""Archives of ended tasks: a line has a task and its rows in other tables."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from grns.archive.archive import TASKS, ArchivedRow, write
from grns.postgres.database import Database, Row, run
from grns.postgres.errors import translated
from grns.postgres.statements import compose
from grns.runtime.place import FilePlace


@dataclass(frozen=True, slots=True)
class ArchivedTable:
    """A table with rows of a task: the column that names it, columns of JSON, and which rows go with it."""

    name: str
    owner: str = "task_id"
    documents: tuple[str, ...] = ()
    condition: str = "true"

    def __post_init__(self) -> None:
        nulls = ", ".join(
            f"case when t.{column}::text = 'null' then '{column}' end" for column in self.documents
        )
        compose(
            self.statement,
            "read_rows",
            table=self.name,
            owner=self.owner,
            nulls=nulls,
            condition=self.condition,
        )

    @property
    def statement(self) -> str:
        """The name of the statement that reads its rows."""
        return f"read_rows_of_{self.name}"


TABLES = (
    ArchivedTable(TASKS, "id", ("payload", "result", "last_error")),
    ArchivedTable("needs"),
    ArchivedTable("waits"),
    ArchivedTable("steps", documents=("value",)),
    ArchivedTable("signals", documents=("value",)),
    ArchivedTable("questions", documents=("evidence", "form", "answer")),
    ArchivedTable("progress", documents=("checkpoint",)),
    ArchivedTable("task_lines", documents=("fields",)),
    ArchivedTable("labels", documents=("metadata", "backoff")),
    ArchivedTable("blob_refs", "owner"),
    ArchivedTable("usage", condition="t.is_summed"),
)
"""What is archived of a task: what delete_tasks.sql deletes, but for what says nothing once it has ended."""

Documents = dict[str, dict[str, list[str]]]
"""Rows as JSON by task and table."""


def documents_of(rows: Sequence[Row]) -> Documents:
    """Return the rows that delete_tasks.sql has deleted."""
    found: Documents = defaultdict(lambda: defaultdict(list))
    for row in rows:
        found[row["owner"]][row["name"]].append(row["document"])
    return _sorted(found)


def _sorted(found: Documents) -> Documents:
    return {owner: {name: sorted(texts) for name, texts in of_it.items()} for owner, of_it in found.items()}


async def write_tasks(database: Database, place: FilePlace, ids: Sequence[str]) -> Documents:
    """Write the tasks that are there to a new archive, and return the rows that are in it.

    Compare them with what you delete: a task may change meanwhile.
    """
    kept: Documents = defaultdict(lambda: defaultdict(list))
    parts: Documents = defaultdict(lambda: defaultdict(list))
    with translated():
        async with database.transaction() as connection:
            await connection.execute("set local timezone to 'UTC'")  # as where they are deleted
            found = {table.name: await run(connection, table.statement, ids) for table in TABLES}
    for name, rows in found.items():
        for row in rows:
            document: str = row["document"]
            kept[row["owner"]][name].append(document)
            if row["nulls"]:
                document = f'{document[:-1]},"$nulls":{json.dumps(row["nulls"])}}}'
            parts[row["owner"]][name].append(document)
    lines = [_line(task_id, tables) for task_id, tables in sorted(parts.items()) if TASKS in tables]
    if not lines:
        return {}
    await write(place, TASKS, lines)
    return _sorted(kept)


def _line(task_id: str, tables: dict[str, list[str]]) -> ArchivedRow:
    """Return the line of a task: its rows by their tables, each as Postgres writes it."""
    inner = ",".join(f'"{name}":[{",".join(documents)}]' for name, documents in tables.items())
    row = json.loads(tables[TASKS][0])
    text = f'{{"id":"{task_id}",{inner}}}'
    return ArchivedRow(row["workspace"], task_id, datetime.fromisoformat(row["finished_at"]), text)
