"""Mail is archived as it is deleted: what was acknowledged, or has expired."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import asyncpg
import pytest

from grns.archive.archive import MAIL, names, read_lines, read_manifest
from grns.archive.reader import ArchiveReader
from grns.bootstrap import services as daemons
from grns.bootstrap.app import App
from grns.client.client import Client
from grns.errors import InvalidInputError, UnavailableError
from grns.maintenance.retention import RULES, ArchivedRetention, delete_tasks
from grns.postgres.database import Database
from grns.runtime.place import DirectoryPlace, FilePlace
from tests.archive.test_tasks import DAY, BrokenPlace, ended, no_blobs
from tests.support.harness import settings_for, submit_many
from tests.support.store import fetch, stranger

(_RULE,) = (rule for rule in RULES if rule.archived_by)
_ROWS = "select row_to_json(m)::text as document from grns.mail m order by m.seq"


async def sent(client: Client, database: Database, *types: str) -> None:
    """Send messages to an agent ten days ago, of which it has acknowledged all but the last."""
    await client.agents.put("coder-1", pool="worker")
    for name in types:
        await client.mail.send(
            name, {"text": "one line\u2028of it", "price": 1.5}, to="coder-1", about="gr-1"
        )
    await client.mail.ack("coder-1", (await client.mail.poll("coder-1"))[:-1])
    await fetch(database, "update grns.mail set created_at = now() - interval '10 days'")


async def rows(database: Database) -> list[str]:
    """Return what there is of mail, as Postgres writes it."""
    return [row["document"] for row in await fetch(database, _ROWS)]


async def retained(database: Database, place: FilePlace) -> int:
    """Delete what is older than a week, into an archive; return how many messages."""
    before = len(await rows(database))
    retention = ArchivedRetention(database, _RULE, 7 * DAY, archive=place, emit=lambda _: None)
    while await retention.step():
        pass
    return before - len(await rows(database))


async def archived(place: FilePlace) -> list[list[str]]:
    """Return the rows of each archive of mail, the latest first."""
    return [await read_lines(place, await read_manifest(place, name)) for name in await names(place, MAIL)]


async def test_what_is_archived_is_what_was_deleted(client: Client, shared: Database, tmp_path: Path) -> None:
    place, reader = DirectoryPlace(tmp_path), ArchiveReader(DirectoryPlace(tmp_path), "default")
    await sent(client, shared, "one", "two", "three", "open")
    before = await rows(shared)
    assert await retained(shared, place) == 3
    assert await retained(shared, place) == 0
    assert await rows(shared) == before[3:], "nobody has acknowledged it"
    await fetch(shared, "update grns.mail set expires_at = now()")
    (expired,) = await rows(shared)
    assert await retained(shared, place) == 1
    assert await archived(place) == [[expired], before[:3]]
    _, archive = (await reader.list(kind=MAIL)).rows
    assert (archive.kind, archive.rows, archive.workspaces) == ("mail", 3, {"default": 3})
    assert [line async for line in reader.rows(archive.name)] == before[:3]
    first, *_, last = (json.loads(line)["seq"] for line in before[:3])
    assert (int(archive.first), int(archive.last)) == (first, last)
    assert (await ArchiveReader(place, "rival").list(kind=MAIL)).rows == []
    with pytest.raises(InvalidInputError, match="only tasks are restored"):
        await reader.ids_in(archive.name)


@pytest.mark.parametrize(("ending", "after"), [(".jsonl.gz", False), (".json", False), (".json", True)])
async def test_mail_that_is_not_written_is_not_deleted(
    client: Client, shared: Database, tmp_path: Path, ending: str, after: bool
) -> None:
    place = BrokenPlace(tmp_path, ending, after=after)
    await sent(client, shared, "one", "two", "open")
    before = await rows(shared)
    with pytest.raises(UnavailableError):
        await retained(shared, place)
    assert await rows(shared) == before
    place.ending = ""
    assert await retained(shared, place) == 2
    assert await archived(place) == [before[:2]] * (2 if after else 1)


async def test_a_message_that_changes_while_it_is_written_stays(
    client: Client, shared: Database, tmp_path: Path
) -> None:
    """As the rotation of the master key does. The lines of an archive have no line breaks within them."""
    await sent(client, shared, "one", "two", "open")

    class Edited(DirectoryPlace):
        def write(self, name: str, content: bytes) -> None:
            """Have a message sealed anew by someone else meanwhile."""
            super().write(name, content)
            if name.endswith(".json"):
                asyncio.run(_resealed(shared.url))

    assert await retained(shared, Edited(tmp_path)) == 1
    changed, _ = await rows(shared)
    assert json.loads(changed)["payload"] == {"text": "new"}
    assert await retained(shared, DirectoryPlace(tmp_path)) == 1
    assert "\n" in changed
    assert [changed.replace("\n", " ")] in await archived(DirectoryPlace(tmp_path))


async def _resealed(url: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute("""update grns.mail set payload = E'{\\n"text": "new"}' where type = 'one'""")
    await connection.close()


async def test_mail_that_is_held_waits_for_the_next_hour(
    client: Client, shared: Database, tmp_path: Path
) -> None:
    """One long transaction holds up no other message."""
    place = DirectoryPlace(tmp_path)
    await sent(client, shared, "one", "two", "open")
    before = await rows(shared)
    async with stranger(shared) as connection:
        await connection.execute("select from grns.mail where type = 'one' for update")
        assert await retained(shared, place) == 1
    assert await archived(place) == [[before[1]]]
    retention = ArchivedRetention(shared, _RULE, 7 * DAY, archive=place, emit=lambda _: None)
    assert not await retention.step(), "one message is no reason to look again"
    await fetch(shared, "update grns.mail set expires_at = now()")
    assert not await retention.step()
    assert sorted(await archived(place)) == [[before[0]], [before[1]]]
    assert len(await rows(shared)) == 1


async def test_rows_are_the_same_in_each_time_zone(client: Client, shared: Database, tmp_path: Path) -> None:
    """Behind a pooler, without GRNS_DATABASE_STARTUP_PARAMS, a session has what the server or others say."""
    place = DirectoryPlace(tmp_path)
    await sent(client, shared, "one", "open")
    task_ids = await submit_many(shared, 1)
    await ended(shared, *task_ids)
    (before, _) = await rows(shared)
    pooled = Database(f"{shared.url}?timezone=Asia/Tokyo", name="test", is_tuned=False)
    async with pooled.opened():
        assert await retained(pooled, place) == 1
        assert (await delete_tasks(pooled, "", 100, 7 * DAY, 7 * DAY, place)).deleted == 1
    assert await archived(place) == [[before]]
    assert (await ArchiveReader(place, "default").task(task_ids[0])).row["finished_at"].endswith("+00:00")


async def test_mail_that_postgres_refuses_to_delete_is_not_archived(
    client: Client, shared: Database, tmp_path: Path
) -> None:
    await sent(client, shared, "one", "two", "open")
    await fetch(shared, "create table public.notes (seq bigint references grns.mail)")
    await fetch(shared, "insert into public.notes select seq from grns.mail where type = 'two'")
    try:
        with pytest.raises(InvalidInputError):
            await retained(shared, DirectoryPlace(tmp_path))
        assert DirectoryPlace(tmp_path).names("") == []
    finally:
        await fetch(shared, "drop table public.notes")
    assert await retained(shared, DirectoryPlace(tmp_path)) == 2


async def test_an_archive_of_mail_has_a_bounded_size(
    client: Client, shared: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grns.maintenance.retention._ARCHIVED_BYTES", 1000)
    place = DirectoryPlace(tmp_path)
    await sent(client, shared, *(f"m{number}" for number in range(7)), "open")
    before = await rows(shared)
    assert await retained(shared, place) == 7
    found = await archived(place)
    assert 1 < max(map(len, found)) < 7
    assert sorted(line for lines in found for line in lines) == sorted(before[:7])


async def test_the_janitor_archives_mail_and_then_its_blobs(
    client: Client, shared: Database, tmp_path: Path
) -> None:
    (place := tmp_path / "archive").mkdir()
    await client.agents.put("coder-1", pool="worker")
    await client.mail.send("report", {"text": "long " * 1000}, to="coder-1")
    (mail,) = await client.mail.poll("coder-1")
    await client.mail.ack("coder-1", mail)
    await fetch(shared, "update grns.mail set created_at = now() - interval '10 days'")
    (before,) = await rows(shared)
    app = App(settings_for(shared.url, archive=str(place), log_retention_days=7.0))
    janitor = daemons.janitor(app, shared, app.transport("test"))
    assert not await janitor._chores["mail"]()
    assert await rows(shared) == []
    assert await archived(DirectoryPlace(place)) == [[before]]
    await no_blobs(shared, DirectoryPlace(place))
    digest = json.loads(before)["payload"]["$blob"].removeprefix("sha256-")
    assert b"long long" in (place / "blobs" / "default" / digest).read_bytes()


async def test_without_an_archive_mail_is_only_deleted(client: Client, shared: Database) -> None:
    await sent(client, shared, "one", "open")
    app = App(settings_for(shared.url, log_retention_days=7.0))
    janitor = daemons.janitor(app, shared, app.transport("test"))
    await janitor._chores["mail"]()
    assert len(await rows(shared)) == 1
