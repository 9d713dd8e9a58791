"""Put archived tasks back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from grns.archive.blobs import restore_blobs
from grns.archive.place import ArchivePlace
from grns.archive.reader import ArchivedTask, Progress
from grns.archive.tasks import TABLES
from grns.postgres.database import Database, run
from grns.postgres.statements import compose

_BATCH = 100

for _table in TABLES:
    compose(f"restore_{_table}", "restore_rows", table=_table)


@dataclass(frozen=True, slots=True)
class RestoreAnswer:
    """What came of a task: `restored`, `exists`, `key_taken` or `blob_missing`.

    Of `key_taken`, another task has its idempotency key now; of `blob_missing`, it refers to a blob that
    neither Postgres nor the archive has.
    """

    task_id: str
    outcome: str


async def restore_tasks(
    database: Database,
    place: ArchivePlace,
    tasks: Sequence[ArchivedTask],
    *,
    keep: timedelta,
    actor: str,
    reason: str | None,
    progress: Progress,
) -> list[RestoreAnswer]:
    """Put archived tasks back as they were, a hundred in one transaction, and say what came of each.

    Retention keeps them for `keep`, and then deletes and archives them again. Each writes
    `evt.task.restored`. What was restored before an error stays.

    Raises:
        ConflictError: a blob in the archive is damaged.
    """
    answers: list[RestoreAnswer] = []
    progress(0, len(tasks))
    for start in range(0, len(tasks), _BATCH):
        batch = tasks[start : start + _BATCH]
        answers += await _restore(database, place, batch, keep, actor, reason)
        progress(len(answers), len(tasks))
    return answers


async def _restore(
    database: Database,
    place: ArchivePlace,
    batch: Sequence[ArchivedTask],
    keep: timedelta,
    actor: str,
    reason: str | None,
) -> list[RestoreAnswer]:
    there = {row["id"] for row in await database.run("find_tasks", [task.id for task in batch])}
    outcomes = dict.fromkeys((task.id for task in batch), "exists")
    left = [task for task in batch if task.id not in there]
    for task in list(left):
        if await _missing_blobs(database, place, task):
            outcomes[task.id] = "blob_missing"
            left.remove(task)
    by_archive: dict[str, list[ArchivedTask]] = {}
    for task in left:
        by_archive.setdefault(task.archive.name, []).append(task)
    async with database.transaction() as connection:
        for name, of_it in by_archive.items():
            rows = await run(
                connection, "restore_tasks", _array(of_it), keep.total_seconds(), name, actor, reason
            )
            ids = {row["id"] for row in rows}
            lines = _array(task for task in of_it if task.id in ids)
            for table in TABLES:
                await run(connection, f"restore_{table}", lines)
            await run(connection, "restore_tags", list(ids))
            outcomes |= {task.id: "restored" if task.id in ids else "key_taken" for task in of_it}
    return [RestoreAnswer(task_id, outcome) for task_id, outcome in outcomes.items()]


async def _missing_blobs(database: Database, place: ArchivePlace, task: ArchivedTask) -> set[str]:
    """Put the blobs of a task back, and return those that cannot be: nothing keeps them for a day."""
    digests = [ref["sha256"] for ref in task.tables.get("blob_refs", ())]
    workspace: str = task.row["workspace"]
    return await restore_blobs(database, place, workspace, digests) if digests else set()


def _array(tasks: Iterable[ArchivedTask]) -> str:
    """Return the lines of tasks as a JSON array. Not parsed and written anew: numbers stay as they are."""
    return f"[{','.join(task.line for task in tasks)}]"
