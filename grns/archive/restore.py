"""Put archived tasks back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from grns.archive.archive import TASKS
from grns.archive.blobs import restore_blobs
from grns.archive.reader import ArchivedTask, Progress
from grns.archive.tasks import TABLES
from grns.postgres.database import Database, run
from grns.postgres.errors import translated
from grns.runtime.place import FilePlace

_BATCH = 50


@dataclass(frozen=True, slots=True)
class RestoreAnswer:
    """What came of a task: `restored`, `exists`, `key_taken` or `blob_missing`.

    Of `key_taken`, another task has its idempotency key now; of `blob_missing`, neither Postgres nor the
    archive has a sound copy of a blob that it refers to.
    """

    task_id: str
    outcome: str


async def restore_tasks(
    database: Database,
    place: FilePlace,
    tasks: Sequence[ArchivedTask],
    *,
    keep: timedelta,
    actor: str,
    reason: str | None,
    progress: Progress,
) -> list[RestoreAnswer]:
    """Put archived tasks back as they were, fifty in one transaction, and say what came of each.

    Retention keeps them for `keep`, and then deletes and archives them again. Each writes
    `evt.task.restored`. What was restored before an error stays.
    """
    by_id = {task.id: task for task in tasks}
    wanted = list(by_id.values())
    answers: list[RestoreAnswer] = []
    progress(0, len(wanted))
    for start in range(0, len(wanted), _BATCH):
        outcomes = await _restore(database, place, wanted[start : start + _BATCH], keep, actor, reason)
        answers += [RestoreAnswer(task_id, outcome) for task_id, outcome in outcomes.items()]
        progress(len(answers), len(wanted))
    return answers


async def _restore(
    database: Database,
    place: FilePlace,
    batch: Sequence[ArchivedTask],
    keep: timedelta,
    actor: str,
    reason: str | None,
) -> dict[str, str]:
    there = await _there(database, batch)
    outcomes = {task.id: "exists" if task.id in there else "key_taken" for task in batch}
    by_archive: dict[str, list[ArchivedTask]] = {}
    for task in batch:
        if task.id in there:
            continue
        if await _missing_blobs(database, place, task):
            outcomes[task.id] = "blob_missing"
        else:
            by_archive.setdefault(task.archive.name, []).append(task)
    with translated():
        outcomes |= await _insert(database, by_archive, keep, actor, reason)
    left = [task for task in batch if outcomes[task.id] == "key_taken"]
    return outcomes | dict.fromkeys(await _there(database, left), "exists")


async def _insert(
    database: Database,
    by_archive: dict[str, list[ArchivedTask]],
    keep: timedelta,
    actor: str,
    reason: str | None,
) -> dict[str, str]:
    """Insert tasks with their rows in one transaction, and return which were."""
    outcomes: dict[str, str] = {}
    async with database.transaction() as connection:
        for name, of_it in by_archive.items():
            ids = [task.id for task in of_it]
            await run(connection, "restore_rows", TASKS, _array(of_it))
            rows = await run(connection, "restore_tasks", ids, keep.total_seconds(), name, actor, reason)
            restored = {row["id"] for row in rows}
            lines = _array(task for task in of_it if task.id in restored)
            for table in TABLES[1:]:
                await run(connection, "restore_rows", table.name, lines)
            await run(connection, "restore_tags", list(restored))
            outcomes |= dict.fromkeys(restored, "restored")
    return outcomes


async def _there(database: Database, tasks: Sequence[ArchivedTask]) -> set[str]:
    return {row["id"] for row in await database.run("find_tasks", [task.id for task in tasks])}


async def _missing_blobs(database: Database, place: FilePlace, task: ArchivedTask) -> set[str]:
    """Put the blobs of a task back, kept for a day at least, and return those that cannot be."""
    digests = [ref["sha256"] for ref in task.tables.get("blob_refs", ())]
    workspace: str = task.row["workspace"]
    return await restore_blobs(database, place, workspace, digests) if digests else set()


def _array(tasks: Iterable[ArchivedTask]) -> str:
    """Return the lines of tasks as a JSON array. Not parsed and written anew: numbers stay as they are."""
    return f"[{','.join(task.line for task in tasks)}]"
