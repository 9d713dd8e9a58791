"""Tasks are archived as they are deleted, and come back as they were."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import asyncpg
import pytest

from grns.archive.archive import names, read_manifest
from grns.archive.reader import ArchivedTask, ArchiveReader
from grns.archive.restore import restore_tasks
from grns.archive.tasks import TABLES, ArchivedTable
from grns.bootstrap import services as daemons
from grns.bootstrap.app import App
from grns.client.client import Client
from grns.errors import ConflictError, ContendedError, InvalidInputError, NotFoundError, UnavailableError
from grns.maintenance.retention import BlobRetention, delete_tasks
from grns.model.outcome import Verb
from grns.postgres.database import Database
from grns.runtime.place import DirectoryPlace, FilePlace
from tests.support.harness import eventually, settings_for, submit_many
from tests.support.store import claim, deleted, fetch, finish

DAY = 86_400.0
# Tables of a task that say nothing once it has ended, or that are made from others.
NOT_ARCHIVED = {"task_pauses", "tags", "texts", "words", "signal_waits", "unique_keys"}
_OWNERS = {"tasks": "id", "blob_refs": "owner"}
_FILL = """
    update grns.tasks set payload = payload
        || '{"price": 1.10, "many": 12345678901234567890123.4500}' where id = $1;
    insert into grns.needs (task_id, needs, workspace, ended_as)
    values ($1, 'gr-other', 'default', 'succeeded');
    insert into grns.waits (task_id, workspace, open, met, required) values ($1, 'default', 0, 1, 1);
    insert into grns.steps (task_id, name, workspace, kind, value, attempt)
    values ($1, 'one', 'default', 'step', '{"a": [1.0, null]}', 1), ($1, 'two', 'default', 'sleep', '1', 1),
        ($1, 'three', 'default', 'step', 'null', 1);
    insert into grns.signals (id, workspace, task_id, name, value)
    values (gen_random_uuid(), 'default', $1, 'go', '"now"');
    insert into grns.questions (id, workspace, task_id, step, kind, title, form, asked_of, digest, attempt)
    values (gen_random_uuid(), 'default', $1, 's', 'approval', 'Pay?', '{}', '{role:finance}', 'd', 1);
    insert into grns.progress (task_id, workspace, checkpoint) values ($1, 'default', '{"page": 7}');
    insert into grns.task_lines (task_id, attempt, number, workspace, at, level, message, fields)
    values ($1, 1, 1, 'default', now(), 20, E'one line\u2028of it', '{"b": 1, "a": 1.50}');
    insert into grns.usage (task_id, attempt, item, workspace, agent_type, task_type, cost, cost_source,
        is_summed)
    values ($1, 1, 'draft', 'default', 'worker', 'noop', 0.12345678, 'reported', true);
"""


class BrokenPlace(DirectoryPlace):
    """A directory that fails at one of its writes; `after` it was written, or before."""

    def __init__(self, root: Path, ending: str, *, after: bool = False) -> None:
        super().__init__(root)
        self.ending = ending
        self.fails_after = after

    def write(self, name: str, content: bytes) -> None:
        """Fail at a file with this ending."""
        is_it = bool(self.ending) and name.endswith(self.ending)
        if is_it and not self.fails_after:
            raise UnavailableError("no space left on device")
        super().write(name, content)
        if is_it:
            raise UnavailableError("no answer")


async def ended(database: Database, *ids: str) -> None:
    """Let tasks have ended ten days ago."""
    for task_id in ids:
        await finish(database, await claim(database, task_id))
    await fetch(
        database, "update grns.tasks set finished_at = now() - interval '10 days' where id = any($1)", ids
    )


async def rows_of(database: Database, *ids: str) -> dict[str, list[str]]:
    """Return all rows of tasks, as Postgres writes them: JSON null and null are not the same there."""
    return {
        table.name: [
            row["row"]
            for row in await fetch(
                database,
                f"select t::text as row from grns.{table.name} t where t.{table.owner} = any($1) order by 1",
                ids,
            )
        ]
        for table in (*TABLES, ArchivedTable("tags"))
    }


async def retained(database: Database, place: FilePlace) -> int:
    """Delete what ended more than a week ago, into an archive; return how many tasks."""
    return (await delete_tasks(database, "", 100, 7 * DAY, 7 * DAY, place)).deleted


async def restored(
    database: Database, place: FilePlace, tasks: Sequence[ArchivedTask], days: float = 30.0
) -> list[str]:
    """Restore tasks, and return what came of each."""
    answers = await restore_tasks(
        database, place, tasks, keep=timedelta(days=days), actor="cli:ann@desk", reason="audit",
        progress=lambda done, total: None,
    )  # fmt: skip
    return [answer.outcome for answer in answers]


async def no_blobs(database: Database, place: FilePlace | None) -> None:
    """Delete what nothing refers to, into an archive."""
    walk = BlobRetention(database, 0.0, emit=lambda _signal: None, archive=place)
    while await walk.step():
        pass


async def test_a_restored_task_is_what_was_deleted(client: Client, shared: Database, tmp_path: Path) -> None:
    place, reader = DirectoryPlace(tmp_path), ArchiveReader(DirectoryPlace(tmp_path), "default")
    blob = await client.blobs.put(b"a report", media_type="text/plain")
    handle = await client.submit(
        "noop", {"report": blob}, pool="worker", title="Report", tags=["b", "a"], description="of May"
    )
    plain = (await submit_many(shared, 3))[0]
    async with shared.connection() as connection:
        for statement in _FILL.split(";")[:-1]:
            await connection.execute(statement, handle.id)
    await ended(shared, handle.id, plain)
    before = await rows_of(shared, handle.id, plain)
    assert all(before.values()), "each table has rows"
    assert await retained(shared, place) == 2
    await no_blobs(shared, place)
    assert not any((await rows_of(shared, handle.id, plain)).values())
    with pytest.raises(NotFoundError):
        await client.blobs.get(blob)

    (name,) = await names(place, "tasks")
    archive = await read_manifest(place, name)
    assert (archive.kind, archive.rows, archive.workspaces) == ("tasks", 2, {"default": 2})
    assert await restored(shared, place, await reader.tasks(await reader.ids_in(name))) == [
        "restored",
        "restored",
    ]
    assert await rows_of(shared, handle.id, plain) == before
    assert await client.blobs.get(blob) == b"a report"
    assert (await client.blobs.state(blob)).media_type == "text/plain"
    counts = await fetch(shared, "select sum(count) as n from grns.deleted_tasks")
    assert counts[0]["n"] == 0, "they are counted again"
    (event,) = await fetch(
        shared,
        "select actor, payload::text from grns.events where kind = 'evt.task.restored' and task_id = $1",
        plain,
    )
    assert event["actor"] == "cli:ann@desk"
    assert json.loads(event["payload"])["archive"] == name


async def test_each_table_of_a_task_is_archived_or_says_nothing_any_more(shared: Database) -> None:
    found = await fetch(
        shared,
        "select distinct table_name from information_schema.columns"
        " where table_schema = 'grns' and column_name in ('task_id', 'owner')"
        " and table_name !~"
        " '^(event|operation|follow|admitted|kept|limit|mail|lease|webhook|schedule|issue)'",
    )
    assert {row["table_name"] for row in found} == {table.name for table in TABLES[1:]} | NOT_ARCHIVED
    documents = await fetch(
        shared,
        "select table_name || '.' || column_name as name from information_schema.columns"
        " where table_schema = 'grns' and table_name = any($1) and data_type in ('json', 'jsonb')",
        [table.name for table in TABLES],
    )
    assert {row["name"] for row in documents} == {
        f"{table.name}.{column}" for table in TABLES for column in table.documents
    }


async def test_a_restored_task_is_kept_for_a_while(shared: Database, tmp_path: Path) -> None:
    place, reader = DirectoryPlace(tmp_path), ArchiveReader(DirectoryPlace(tmp_path), "default")
    (task_id,) = await submit_many(shared, 1)
    await ended(shared, task_id)
    assert await retained(shared, place) == 1
    assert await restored(shared, place, [await reader.task(task_id)]) == ["restored"]
    assert await retained(shared, place) == 0
    assert await restored(shared, place, [await reader.task(task_id)]) == ["exists"]
    await fetch(shared, "update grns.kept_tasks set until = now()")
    assert await retained(shared, place) == 1
    assert await deleted(shared, "delete_kept_tasks", 100, 0.0) == 1
    assert await restored(shared, place, [await reader.task(task_id)], days=0.0) == ["restored"]


@pytest.mark.parametrize("ending", [".jsonl.gz", ".json"])
async def test_what_is_not_written_is_not_deleted(shared: Database, tmp_path: Path, ending: str) -> None:
    place, reader = BrokenPlace(tmp_path, ending), ArchiveReader(DirectoryPlace(tmp_path), "default")
    ids = await submit_many(shared, 2)
    await ended(shared, *ids)
    before = await rows_of(shared, *ids)
    with pytest.raises(UnavailableError, match="no space left"):
        await retained(shared, place)
    assert await rows_of(shared, *ids) == before
    assert (await reader.list()).rows == [], "what has no manifest is not there"
    with pytest.raises(NotFoundError):
        await reader.task(ids[0])
    place.ending = ""
    assert await retained(shared, place) == 2
    assert await restored(shared, place, await reader.tasks(ids)) == ["restored", "restored"]
    assert await rows_of(shared, *ids) == before


async def test_what_was_written_and_not_deleted_is_written_again(shared: Database, tmp_path: Path) -> None:
    """The janitor has died before its transaction committed: the later archive counts."""
    place, reader = (
        BrokenPlace(tmp_path, ".json", after=True),
        ArchiveReader(DirectoryPlace(tmp_path), "default"),
    )
    ids = await submit_many(shared, 2)
    await ended(shared, *ids)
    with pytest.raises(UnavailableError):
        await retained(shared, place)
    (early,) = (await reader.list()).rows
    assert await restored(shared, place, await reader.tasks(await reader.ids_in(early.name))) == [
        "exists",
        "exists",
    ]
    async with shared.connection() as connection:
        await connection.fetchval('select grns.label_task($1, \'{"title": "later"}\')', ids[0])
    place.ending = ""
    assert await retained(shared, place) == 2
    assert len((await reader.list()).rows) == 2
    later = await reader.task(ids[0])
    assert later.archive.name != early.name
    assert later.tables["labels"][0]["title"] == "later"


async def test_archives_are_of_one_workspace_for_each(shared: Database, tmp_path: Path) -> None:
    place = DirectoryPlace(tmp_path)
    ours = await submit_many(shared, 1)
    theirs = await submit_many(shared, 1)
    await ended(shared, *ours, *theirs)
    await fetch(shared, "update grns.tasks set workspace = 'rival' where id = any($1)", theirs)
    assert await retained(shared, place) == 2
    for workspace, own, other in (("default", ours, theirs), ("rival", theirs, ours)):
        reader = ArchiveReader(place, workspace)
        (archive,) = (await reader.list()).rows
        assert await reader.ids_in(archive.name) == own
        assert [json.loads(line)["id"] async for line in reader.rows(archive.name)] == own
        with pytest.raises(NotFoundError):
            await reader.task(other[0])
    assert (await ArchiveReader(place, "stranger").list()).rows == []


async def test_what_cannot_be_restored_is_told(client: Client, shared: Database, tmp_path: Path) -> None:
    place, reader = DirectoryPlace(tmp_path), ArchiveReader(DirectoryPlace(tmp_path), "default")
    blob = await client.blobs.put(b"a report")
    first = await client.submit("noop", pool="worker", idempotency_key="may")
    second = await client.submit("noop", {"report": blob}, pool="worker")
    third = await client.submit("noop", pool="worker")
    await ended(shared, first.id, second.id, third.id)
    assert await retained(shared, place) == 3
    (tmp_path / "elsewhere").mkdir()
    await no_blobs(shared, DirectoryPlace(tmp_path / "elsewhere"))
    await client.submit("noop", pool="worker", idempotency_key="may")
    (tmp_path / "blobs" / "default").mkdir(parents=True)
    (tmp_path / "blobs" / "default" / blob.id.removeprefix("sha256-")).write_bytes(b"damaged")
    tasks = await reader.tasks([first.id, second.id, third.id])
    assert await restored(shared, place, tasks) == ["key_taken", "blob_missing", "restored"]


async def test_a_damaged_archive_restores_nothing(shared: Database, tmp_path: Path) -> None:
    place, reader = DirectoryPlace(tmp_path), ArchiveReader(DirectoryPlace(tmp_path), "default")
    (task_id,) = await submit_many(shared, 1)
    await ended(shared, task_id)
    assert await retained(shared, place) == 1
    (archive,) = (await reader.list()).rows
    file = tmp_path / archive.path
    content = file.read_bytes()
    for broken in (content[:-1] + bytes([content[-1] ^ 1]), content[:-9], b"", gzip.compress(b"{}")):
        file.write_bytes(broken)
        with pytest.raises(ConflictError, match="is damaged"):
            await reader.ids_in(archive.name)
        with pytest.raises(NotFoundError):
            await reader.task(task_id)
        assert "is damaged" in reader.unread.pop(archive.name)
    manifest = tmp_path / f"{archive.name}.json"
    for text in ("{}", "[]", "no", manifest.read_text().replace('"format": 1', '"format": 2')):
        manifest.write_text(text)
        assert (await reader.list()).rows == []
        assert list(reader.unread) == [archive.name]
    with pytest.raises(NotFoundError):
        await reader.ids_in("tasks/2026-01-01/a~b~c")
    with pytest.raises(NotFoundError):
        await reader.ids_in("tasks/../../secret~b~c")


async def test_a_task_that_changes_while_it_is_written_stays(shared: Database, tmp_path: Path) -> None:
    ids = await submit_many(shared, 2)
    await ended(shared, *ids)

    class Edited(DirectoryPlace):
        def write(self, name: str, content: bytes) -> None:
            """Have the task relabelled by someone else meanwhile."""
            super().write(name, content)
            if name.endswith(".json"):
                asyncio.run(_relabelled(shared.url, ids[0]))

    with pytest.raises(ContendedError):
        await retained(shared, Edited(tmp_path))
    place, reader = DirectoryPlace(tmp_path), ArchiveReader(DirectoryPlace(tmp_path), "default")
    assert await retained(shared, place) == 2
    assert (await reader.task(ids[0])).tables["labels"][0]["title"] == "later"
    # The earlier archive is restored as what came later, too.
    (_, early) = (await reader.list()).rows
    assert (
        await restored(shared, place, await reader.tasks(await reader.ids_in(early.name))) == ["restored"] * 2
    )
    (label,) = await fetch(shared, "select title from grns.labels")
    assert label["title"] == "later"


async def _relabelled(url: str, task_id: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.fetchval('select grns.label_task($1, \'{"title": "later"}\')', task_id)
    await connection.close()


@pytest.mark.parametrize("when", ["", "deferrable initially deferred"])
async def test_what_postgres_refuses_to_delete_is_not_archived(
    shared: Database, tmp_path: Path, when: str
) -> None:
    """A table of a user refers to it: each walk would write it again."""
    ids = await submit_many(shared, 2)
    await ended(shared, *ids)
    await fetch(shared, f"create table public.orders (task_id text references grns.tasks {when})")
    await fetch(shared, "insert into public.orders values ($1)", ids[0])
    try:
        with pytest.raises(InvalidInputError):
            await retained(shared, DirectoryPlace(tmp_path))
        assert DirectoryPlace(tmp_path).names("") == []
    finally:
        await fetch(shared, "drop table public.orders")
    assert await retained(shared, DirectoryPlace(tmp_path)) == 2


async def test_a_place_that_hangs_holds_up_nothing(
    shared: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = threading.Event()

    class Hung(DirectoryPlace):
        def write(self, name: str, content: bytes) -> None:
            """Wait as a disk that is away does."""
            goes_on.wait(30)
            super().write(name, content)

    monkeypatch.setattr("grns.runtime.place._CALL_SECONDS", 0.2)
    await ended(shared, *(await submit_many(shared, 1)))
    with pytest.raises(UnavailableError, match=r"within 0\.2 s"):
        await retained(shared, Hung(tmp_path))
    for _ in range(3):
        with pytest.raises(UnavailableError, match="still waits"):
            await retained(shared, DirectoryPlace(tmp_path))
    goes_on.set()

    async def is_retained() -> bool:
        with suppress(UnavailableError):
            return await retained(shared, DirectoryPlace(tmp_path)) == 1
        return False

    await eventually(is_retained)


async def test_a_place_that_is_away_is_asked_once_a_minute(shared: Database, tmp_path: Path) -> None:
    (place := tmp_path / "archive").mkdir()
    ids = await submit_many(shared, 1)
    await ended(shared, *ids)
    app = App(settings_for(shared.url, archive=str(place), task_retention_days=7.0))
    janitor = daemons.janitor(app, shared, app.transport("test"))
    place.rmdir()
    with pytest.raises(UnavailableError, match="cannot write"):
        await janitor._chores["tasks"]()
    place.mkdir()
    for name in ("tasks", "blobs", "archived_partitions"):
        assert not await janitor._chores[name]()
    assert await fetch(shared, "select from grns.tasks")
    janitor._rests_until.clear()
    await janitor._chores["tasks"]()
    assert not await fetch(shared, "select from grns.tasks")
    assert (await ArchiveReader(DirectoryPlace(place), "default").task(ids[0])).id == ids[0]


async def test_archives_have_a_bounded_size(
    shared: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grns.maintenance.retention._ARCHIVED_BYTES", 1000)
    place, reader = DirectoryPlace(tmp_path), ArchiveReader(DirectoryPlace(tmp_path), "default")
    ids = sorted(await submit_many(shared, 9))
    await ended(shared, *ids)
    after, pages = "", 0
    while (page := await delete_tasks(shared, after, 100, DAY, DAY, place)).seen == 100:
        assert 0 < page.deleted < 9
        after, pages = page.last_id, pages + 1
    assert pages > 1
    assert sorted([task.id for task in await reader.tasks(ids)]) == ids
    assert not await fetch(shared, "select from grns.tasks")


async def test_a_failure_comes_back_with_its_issue(shared: Database, tmp_path: Path) -> None:
    """Issues are forgotten with their last task."""
    place, reader = DirectoryPlace(tmp_path), ArchiveReader(DirectoryPlace(tmp_path), "default")
    (task_id,) = await submit_many(shared, 1)
    await finish(shared, await claim(shared, task_id), Verb.FAIL)
    await fetch(shared, "update grns.tasks set finished_at = now() - interval '10 days'")
    assert await retained(shared, place) == 1
    assert await restored(shared, place, [await reader.task(task_id)]) == ["restored"]
    (issue,) = await fetch(shared, "select sample_task_id, total, open_count from grns.issues")
    assert tuple(issue) == (task_id, 1, 0), "the counter adds it"


async def test_lists_have_pages(shared: Database, tmp_path: Path) -> None:
    place, reader = DirectoryPlace(tmp_path), ArchiveReader(DirectoryPlace(tmp_path), "default")
    for _ in range(5):
        await ended(shared, *(await submit_many(shared, 1)))
        assert await retained(shared, place) == 1
    first = await reader.list(limit=3)
    second = await reader.list(limit=3, after=first.next_cursor)
    assert [one.name for one in (*first.rows, *second.rows)] == await names(place, "tasks")
    assert second.next_cursor is None
    assert (await reader.list(kind="events")).rows == []
    for wrong in ({"kind": "../.."}, {"limit": 0}, {"after": "no"}):
        with pytest.raises(InvalidInputError):
            await reader.list(**wrong)
