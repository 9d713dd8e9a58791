"""Tasks are archived as they are deleted, and come back as they were."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from grns.archive.archive import names, read_manifest
from grns.archive.place import DirectoryPlace
from grns.archive.reader import ArchivedTask, ArchiveReader
from grns.archive.restore import restore_tasks
from grns.archive.tasks import TABLES
from grns.client.client import Client
from grns.errors import ConflictError, InvalidInputError, NotFoundError, UnavailableError
from grns.maintenance.retention import RULES, BlobRetention, delete_tasks
from grns.postgres.database import Database
from tests.support.harness import submit_many
from tests.support.store import claim, fetch, finish

DAY = 86_400.0
# Tables of a task that say nothing once it has ended, or that are made from others.
NOT_ARCHIVED = {"task_pauses", "tags", "texts", "words", "event_waits", "signal_waits", "unique_keys"}
_OWNERS = {"tasks": "id", "blob_refs": "owner"}
_FILL = """
    update grns.tasks set payload = payload
        || '{"price": 1.10, "many": 12345678901234567890123.4500}' where id = $1;
    insert into grns.needs (task_id, needs, workspace, ended_as)
    values ($1, 'gr-other', 'default', 'succeeded');
    insert into grns.waits (task_id, workspace, open, met, required) values ($1, 'default', 0, 1, 1);
    insert into grns.steps (task_id, name, workspace, kind, value, attempt)
    values ($1, 'one', 'default', 'step', '{"a": [1.0, null]}', 1), ($1, 'two', 'default', 'sleep', '1', 1);
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
    """Return all rows of tasks, as Postgres writes them."""
    return {
        table: [
            row["document"]
            for row in await fetch(
                database,
                f"select row_to_json(t)::text as document from grns.{table} t"
                f" where t.{_OWNERS.get(table, 'task_id')} = any($1) order by 1",
                ids,
            )
        ]
        for table in ("tasks", "tags", *TABLES)
    }


async def retained(database: Database, place: DirectoryPlace) -> int:
    """Delete what ended more than a week ago, into an archive; return how many tasks."""
    return (await delete_tasks(database, "", 100, 7 * DAY, 7 * DAY, place)).deleted


async def restored(
    database: Database, place: DirectoryPlace, tasks: Sequence[ArchivedTask], days: float = 30.0
) -> list[str]:
    """Restore tasks, and return what came of each."""
    answers = await restore_tasks(
        database, place, tasks, keep=timedelta(days=days), actor="cli:ann@desk", reason="audit",
        progress=lambda done, total: None,
    )  # fmt: skip
    return [answer.outcome for answer in answers]


async def no_blobs(database: Database, place: DirectoryPlace) -> None:
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

    (name,) = await names(place)
    archive = await read_manifest(place, name)
    assert (archive.kind, archive.rows, archive.workspaces) == ("tasks", 2, {"default": 2})
    assert await restored(shared, place, await reader.tasks_in(name)) == ["restored", "restored"]
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
        " and table_name !~ '^events|^operation|^follow|^admitted|^kept|^limit|^mail'",
    )
    assert {row["table_name"] for row in found} == {*TABLES} | NOT_ARCHIVED


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
    (rule,) = [rule for rule in RULES if rule.name == "kept_tasks"]
    assert await rule.delete_page(shared, 0.0) == 1
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
    assert await restored(shared, place, await reader.tasks_in(early.name)) == ["exists", "exists"]
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
    theirs = await submit_many(shared, 1, workspace="rival")
    await ended(shared, *ours, *theirs)
    assert await retained(shared, place) == 2
    for workspace, own, other in (("default", ours, theirs), ("rival", theirs, ours)):
        reader = ArchiveReader(place, workspace)
        (archive,) = (await reader.list()).rows
        assert [task.id for task in await reader.tasks_in(archive.name)] == own
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
    await no_blobs(shared, DirectoryPlace(tmp_path / "elsewhere"))
    await client.submit("noop", pool="worker", idempotency_key="may")
    tasks = await reader.tasks([first.id, second.id, third.id])
    assert await restored(shared, place, tasks) == ["key_taken", "blob_missing", "restored"]


async def test_a_damaged_archive_restores_nothing(shared: Database, tmp_path: Path) -> None:
    place, reader = DirectoryPlace(tmp_path), ArchiveReader(DirectoryPlace(tmp_path), "default")
    await ended(shared, *(await submit_many(shared, 1)))
    assert await retained(shared, place) == 1
    (archive,) = (await reader.list()).rows
    file = tmp_path / archive.path
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(ConflictError, match="is damaged"):
        await reader.tasks_in(archive.name)
    manifest = tmp_path / f"{archive.name}.json"
    for text in ("{}", "[]", "no", manifest.read_text().replace('"format": 1', '"format": 2')):
        manifest.write_text(text)
        with pytest.raises(ConflictError):
            await reader.list()
    with pytest.raises(NotFoundError):
        await reader.tasks_in("tasks/2026-01-01/a~b~c")


async def test_lists_have_pages(shared: Database, tmp_path: Path) -> None:
    place, reader = DirectoryPlace(tmp_path), ArchiveReader(DirectoryPlace(tmp_path), "default")
    for _ in range(5):
        await ended(shared, *(await submit_many(shared, 1)))
        assert await retained(shared, place) == 1
    first = await reader.list(limit=3)
    second = await reader.list(limit=3, after=first.next_cursor)
    assert [one.name for one in (*first.rows, *second.rows)] == await names(place)
    assert second.next_cursor is None
    assert (await reader.list(kind="events")).rows == []
    with pytest.raises(InvalidInputError):
        await reader.list(after="b25l")


@pytest.mark.parametrize("name", [rule.name for rule in RULES if rule.is_archived])
async def test_rows_of_other_tables_are_archived_too(shared: Database, tmp_path: Path, name: str) -> None:
    place, reader = DirectoryPlace(tmp_path), ArchiveReader(DirectoryPlace(tmp_path), "default")
    (rule,) = [rule for rule in RULES if rule.name == name]
    table = rule.table or rule.name
    await fetch(shared, _ROWS[name])
    (before,) = await fetch(shared, f"select row_to_json(t)::text as document from grns.{table} t")
    with pytest.raises(UnavailableError):
        await rule.delete_page(shared, 7.0, BrokenPlace(tmp_path, ".json"))
    assert await rule.delete_page(shared, 7.0, place) == 1
    assert not await fetch(shared, f"select from grns.{table}")
    (archive,) = (await reader.list(kind=table)).rows
    assert [line async for line in reader.rows(archive.name)] == [before["document"]]
    with pytest.raises(InvalidInputError, match="only tasks are restored"):
        await reader.tasks_in(archive.name)
    assert await rule.delete_page(shared, 7.0, place) == 0, "what is empty is no archive"
    assert len((await reader.list()).rows) == 1


_WORKFLOW = """
    insert into grns.workflows (id, workspace, name, status, trace_id, created_at, sealed_at, ended_at)
    values ('wf-1', 'default', 'nightly', '{status}', 't', now() - interval '9 days', now(),
        now() - interval '8 days')
"""
_ROWS = {
    "workflows": _WORKFLOW.format(status="succeeded"),
    "failed_workflows": _WORKFLOW.format(status="failed"),
    "dead_letters": """
        insert into grns.dead_letters (reason, detail, subject, stream, stream_seq, delivery_count, headers,
            body, body_sha256, state, updated_at)
        values ('bad_json', '', 'cmd.task.execute.v1', 'GRNS_CMD', 1, 1, '{}', '\\x00ff', '', 'discarded',
            now() - interval '8 days')
    """,
    "mail": """
        insert into grns.mail (workspace, id, to_agent, from_agent, type, payload, created_at, expires_at,
            acked_at)
        values ('default', gen_random_uuid(), 'ann', 'bob', 'note', '{"text": "hello"}',
            now() - interval '8 days', now(), now())
    """,
}
