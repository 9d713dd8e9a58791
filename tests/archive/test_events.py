"""A partition of the log is archived, part by part, before it is dropped."""

from __future__ import annotations

from pathlib import Path

import pytest

from grns.archive.archive import EVENTS, names, read_lines, read_manifest
from grns.archive.events import archive_part
from grns.archive.reader import ArchiveReader
from grns.dev.servers import LocalPostgres
from grns.errors import InvalidInputError, UnavailableError
from grns.maintenance.partitions import archive_partitions, keep_partitions
from grns.postgres.database import Database
from grns.runtime.place import DirectoryPlace
from tests.archive.test_tasks import DAY, BrokenPlace, retained
from tests.conftest import new_database
from tests.support.harness import submit_many
from tests.support.store import claim, fetch, finish

_ROWS = 2_000_000
_FIRST = f"events_{1:019}"


async def tables(database: Database) -> list[str]:
    """Return the tables that were made for the log, attached or not."""
    rows = await fetch(
        database,
        "select tablename as name from pg_tables"
        " where schemaname = 'grns' and tablename ~ '^events_[0-9]' order by 1",
    )
    return [row["name"] for row in rows]


async def old_log(database: Database) -> tuple[list[str], list[str]]:
    """Have a first partition past its retention; return its tasks, and its rows as Postgres writes them."""
    ids = await submit_many(database, 7)
    for task_id in ids:
        await finish(database, await claim(database, task_id))
    await fetch(database, "update grns.events set created_at = now() - interval '31 days'")
    await fetch(
        database,
        "update grns.tasks set created_at = now() - interval '32 days',"
        " finished_at = now() - interval '31 days'",
    )
    await fetch(database, "select setval('grns.events_seq', $1)", _ROWS + 5)
    await submit_many(database, 1)
    for cursor in ("relay_cursor", "count_cursor", "text_cursor", "follow_cursor"):
        await fetch(database, f"update grns.{cursor} set low = $1", _ROWS)
    rows = await fetch(database, f"select row_to_json(e)::text as document from grns.{_FIRST} e order by seq")
    return ids, [row["document"] for row in rows]


async def archived(place: DirectoryPlace) -> list[str]:
    """Return all archived events, in their order."""
    return [
        line
        for name in sorted(await names(place, EVENTS))
        for line in await read_lines(place, await read_manifest(place, name))
    ]


async def test_a_partition_goes_once_all_of_it_is_archived(database: Database, tmp_path: Path) -> None:
    place = DirectoryPlace(tmp_path)
    ids, before = await old_log(database)
    await keep_partitions(database, _ROWS, 30 * DAY, is_archived=True)
    assert await archive_partitions(database, place), "there is more to do"
    assert _FIRST in await tables(database)
    (tmp_path / "events" / f"{1:019}" / "._1~2~3.json").write_text("of another program")
    assert not await archive_partitions(database, place)
    assert _FIRST not in await tables(database)
    assert await archived(place) == before
    (name,) = await names(place, EVENTS)
    manifest = await read_manifest(place, name)
    assert (manifest.kind, manifest.rows, manifest.workspaces) == (
        "events",
        len(before),
        {"default": len(before)},
    )
    assert (int(manifest.first), int(manifest.last)) == (1, len(before))

    assert await retained(database, place) == len(ids)
    reader = ArchiveReader(place, "default")
    told: list[tuple[int, int]] = []
    task = await reader.task(ids[3])
    events = [line async for line in reader.events_of(task, lambda done, total: told.append((done, total)))]
    assert events == [line for line in before if ids[3] in line]
    assert told == [(0, 1), (1, 1)]


async def test_a_partition_is_archived_in_parts_that_go_on(database: Database, tmp_path: Path) -> None:
    place = BrokenPlace(tmp_path, "")
    _, before = await old_log(database)
    count, broken = 0, {2: (".jsonl.gz", False), 3: (".json", False), 5: (".json", True)}
    while True:
        count += 1
        place.ending, place.fails_after = broken.get(count, ("", False))
        try:
            if not await archive_part(database, place, _FIRST, rows=3):
                break
        except UnavailableError:
            assert count in broken
    assert await archived(place) == before
    assert len(await names(place, EVENTS)) == -(-len(before) // 3)


async def test_the_log_of_another_database_is_not_taken_for_this_one(
    database: Database, postgres: LocalPostgres, tmp_path: Path
) -> None:
    place = DirectoryPlace(tmp_path)
    _, before = await old_log(database)
    while await archive_part(database, place, _FIRST, rows=4):
        pass
    async with new_database(postgres) as url:
        other = Database(url, name="other")
        async with other.opened():
            _, theirs = await old_log(other)
            while await archive_part(other, place, _FIRST, rows=4):
                pass
    assert sorted(await archived(place)) == sorted([*before, *theirs])


async def test_a_log_without_an_archive_writes_none(database: Database, tmp_path: Path) -> None:
    await old_log(database)
    await keep_partitions(database, _ROWS, 30 * DAY)
    assert _FIRST not in await tables(database)
    assert await names(DirectoryPlace(tmp_path), EVENTS) == []


async def test_only_partitions_of_the_log_are_archived(database: Database, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError):
        await archive_part(database, DirectoryPlace(tmp_path), "events; drop table grns.tasks")
