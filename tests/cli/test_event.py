"""`grns events tail` and `export`: the log as far as it is settled, and behind a place, nothing left out."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from grns.cli import event_log, run
from grns.cli.event_log import EventLog
from grns.errors import UnavailableError
from grns.outbox import events as event
from grns.outbox.events import EventQuery
from grns.postgres.database import Database
from tests.support.aggregators import begin_here, count_all
from tests.support.harness import submit, submit_many
from tests.support.store import cancel, empty, fetch, stranger

DEFAULT = EventQuery("default", ["evt.task.*"])


@pytest.fixture
async def settled(shared: Database) -> Database:
    """A log that is counted up to here."""
    await begin_here(shared)
    return shared


async def opened(database: Database, wanted: EventQuery = DEFAULT, **said: Any) -> EventLog:
    """Return the log, read from a place on."""
    log = EventLog(database, wanted)
    await log.open(**{"after": None, "since": None, "until": None, "is_from_now": False} | said)
    return log


async def rest(log: EventLog) -> list[str]:
    """Return the tasks of all that is left to be read."""
    found: list[str] = []
    while not log.is_at_end:
        found += [str(row.task_id) for row in await log.page()]
        log.keep()
    return found


async def test_it_is_read_to_where_it_is_settled_and_goes_on_there(settled: Database) -> None:
    begin = (await event.bounds(settled)).settled
    first = await submit_many(settled, 5)
    log = await opened(settled, after=begin)
    assert await rest(log) == [], "nobody has looked yet whether something is missing"
    await count_all(settled)
    log.refresh()
    assert await rest(log) == first
    second = await submit_many(settled, 3)
    await count_all(settled)
    assert await rest(await opened(settled, after=log.after)) == second


async def test_what_commits_late_is_not_left_out(settled: Database) -> None:
    begin = (await event.bounds(settled)).settled
    async with stranger(settled) as connection:
        late = await connection.fetchval("select id from grns.submit_task('late') as t (id)")
        early = (await submit(settled)).id
        await count_all(settled)
        log = await opened(settled, after=begin)
        assert await rest(log) == []
        await connection.execute("commit")
    await count_all(settled)
    assert await rest(await opened(settled, after=log.after)) == [late, early]


async def test_pages_that_were_not_kept_come_again(
    settled: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_log, "_PAGE", 2)
    begin = (await event.bounds(settled)).settled
    ids = await submit_many(settled, 5)
    await count_all(settled)
    log = await opened(settled, after=begin)
    for _ in range(2):
        assert [row.task_id for row in await log.page()] == ids[:2]
    log.keep()
    assert await rest(log) == ids[2:]


async def test_it_is_read_by_time(settled: Database) -> None:
    ids = []
    for minutes in (30, 20, 10):
        ids.append((await submit(settled)).id)
        await fetch(
            settled,
            "update grns.events set created_at = now() - $1 * interval '1 min' where task_id = $2",
            minutes,
            ids[-1],
        )
    await count_all(settled)
    assert await rest(await opened(settled, since=25 * 60.0)) == ids[1:]
    assert await rest(await opened(settled, until=15 * 60.0, since=3600.0)) == ids[:2]
    now = datetime.now(UTC)
    said: dict[str, Any] = {"since": now - timedelta(minutes=25), "until": now - timedelta(minutes=15)}
    assert await rest(await opened(settled, **said)) == ids[1:2]
    assert await rest(await opened(settled, since=60.0)) == []
    first = await opened(settled, until=15 * 60.0)
    assert await rest(first) == ids[:2]
    assert await rest(await opened(settled, after=first.after)) == ids[2:]
    assert await rest(await opened(settled, is_from_now=True)) == []


async def test_what_holds_its_end_up_is_told(settled: Database) -> None:
    log = await opened(settled)
    assert await log.delay_reason() is None
    await submit(settled)
    await fetch(settled, "update grns.relay_cursor set low = 0, published = '{}'")
    await fetch(settled, "update grns.events set created_at = now() - interval '1 min'")
    told = await log.delay_reason()
    assert told is not None
    assert "neither a relay nor a stats aggregator" in told
    await count_all(settled)
    assert await log.delay_reason() is None


# ---------------------------------------------------------------- the commands


@dataclass(frozen=True)
class Answer:
    """What one command left behind."""

    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        """What it wrote, line by line."""
        return [json.loads(line) for line in self.out.splitlines()]


Call = Callable[..., Answer]


@pytest.fixture
def grns(shared_url: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Call:
    """Run commands on the test's own database; there is no broker."""
    monkeypatch.setenv("GRNS_DATABASE_URL", shared_url)
    monkeypatch.setenv("GRNS_NATS_URL", "nats://127.0.0.1:1")
    monkeypatch.setenv("GRNS_WORKSPACE", "default")  # what a command is given, it leaves there for the next

    def call(*arguments: str) -> Answer:
        capfd.readouterr()
        code = run(["events", *arguments])
        return Answer(code, *capfd.readouterr())

    return call


def with_tasks(url: str) -> list[str]:
    """Let there be four tasks of ours, of which one is cancelled, and one of another workspace."""

    async def do() -> list[str]:
        database = Database(url, name="test", size=4)
        async with database.opened():
            await empty(database)
            await begin_here(database)
            ids = await submit_many(database, 4)
            await submit(database, workspace="other")
            await cancel(database, ids[0])
            await count_all(database)
        return ids

    return asyncio.run(do())


def test_an_export_is_resumed_where_it_ended(grns: Call, shared_url: str) -> None:
    ids = with_tasks(shared_url)
    whole = grns("export")
    assert whole.code == 0
    assert [row["task_id"] for row in whole.rows] == [*ids, ids[0]]
    assert [row["kind"] for row in whole.rows][-1] == "evt.task.cancelled"
    assert whole.rows[0]["created_at"].endswith("Z")
    assert whole.err.startswith("5 exported; continue with --after ")
    place = whole.err.split()[-1]
    again = grns("export", "--after", place)
    assert (again.code, again.out) == (0, "")
    assert again.err == f"0 exported; continue with --after {place}\n"
    some = grns("export", "--after", str(whole.rows[2]["seq"]))
    assert some.rows == whole.rows[3:]


def test_an_export_into_a_file_goes_on_wherever_it_was_killed(
    grns: Call, shared_url: str, tmp_path: Path
) -> None:
    with_tasks(shared_url)
    whole = grns("export").out.encode()
    file = tmp_path / "events.jsonl"
    ends = [place for place, byte in enumerate(whole, 1) if byte == ord("\n")]
    # Nothing at all, the first bytes, and around the ends of lines.
    for place in (0, 1, 5, ends[0] - 1, ends[0], ends[0] + 1, ends[3] - 7, ends[-1] - 1, ends[-1]):
        file.write_bytes(whole[:place])
        done = grns("export", "--append-to", str(file))
        assert (done.code, done.out) == (0, ""), place
        assert file.read_bytes() == whole, place
        missing = sum(end > place for end in ends)
        assert done.err.startswith(f"{missing} exported; continue with --after "), place


def test_an_export_into_a_file_that_is_missing_or_begins_late(
    grns: Call, shared_url: str, tmp_path: Path
) -> None:
    ids = with_tasks(shared_url)
    rows = grns("export").rows
    file = tmp_path / "events.jsonl"
    said = ("export", "--append-to", str(file), "--kind", "evt.task.queued")
    assert grns(*said, "--after", str(rows[1]["seq"])).code == 0
    assert [json.loads(line)["task_id"] for line in file.read_text().splitlines()] == ids[2:]
    assert grns(*said, "--after", "0", "--since", "1h").code == 0, "what it holds counts for more"
    assert [json.loads(line)["task_id"] for line in file.read_text().splitlines()] == ids[2:]


@pytest.mark.parametrize(
    ("held", "code", "says"),
    [
        (b"my notes", 2, "its end was not written by an export"),
        (b"my notes\n", 2, "its last line is not an event"),
        (b'{"seq": 1}\n', 2, "its last line is not an event"),
        (b'{"seq": 1, "workspace": "other"}\n', 4, "holds events of workspace other"),
        (b'{"seq": 1, "workspace": "default"}\nmy notes', 2, "was not written by an export"),
    ],
)
def test_an_export_leaves_alone_what_is_not_its_own(
    grns: Call, shared_url: str, tmp_path: Path, held: bytes, code: int, says: str
) -> None:
    with_tasks(shared_url)
    file = tmp_path / "events.jsonl"
    file.write_bytes(held)
    refused = grns("export", "--append-to", str(file))
    assert (refused.code, refused.out) == (code, "")
    assert says in refused.err
    assert file.read_bytes() == held


def test_an_export_is_alone_in_its_file_and_takes_none_that_is_no_file(
    grns: Call, shared_url: str, tmp_path: Path
) -> None:
    with_tasks(shared_url)
    file = tmp_path / "events.jsonl"
    with event_log.opened_file(file, "default"):
        refused = grns("export", "--append-to", str(file))
    assert refused.code == 4
    assert "another export writes into" in refused.err
    assert "try: the same command again" in refused.err
    assert file.read_bytes() == b""
    for said, code in (("/dev/null", 2), (str(tmp_path), 2), (str(tmp_path / "none" / "x"), 1)):
        assert grns("export", "--append-to", said).code == code, said


def test_a_full_disk_is_told(
    grns: Call, shared_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with_tasks(shared_url)

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.fsync", full)
    file = tmp_path / "events.jsonl"
    told = grns("export", "--append-to", str(file))
    assert told.code == 1
    assert f"{file}: No space left on device" in told.err
    assert "interrupted; continue with --after 0" in told.err


@pytest.mark.parametrize("command", ["tail", "export"])
def test_whoever_is_asked_to_end_says_where_it_was(
    grns: Call, shared_url: str, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    with_tasks(shared_url)
    first, page, pages = grns("export").rows[0]["seq"], EventLog.page, count()

    async def asked(self: EventLog) -> Any:
        if next(pages):
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(20)
        return await page(self)

    monkeypatch.setattr(EventLog, "page", asked)
    monkeypatch.setattr(event_log, "_PAGE", 1)
    said = ("-o", "jsonl") if command == "tail" else ()
    told = grns(command, "--after", str(first - 1), *said)
    assert (told.code, [row["seq"] for row in told.rows]) == (143, [first])
    assert f"continue with --after {first}\n" in told.err


def test_a_place_that_the_log_has_not_come_to_is_told(grns: Call, shared_url: str) -> None:
    with_tasks(shared_url)
    far = str(2**40)
    told = grns("export", "--after", far)
    assert (told.code, told.rows) == (0, [])
    assert f"there is nothing after {far} yet" in told.err


def test_an_export_is_of_what_is_asked_for(grns: Call, shared_url: str) -> None:
    ids = with_tasks(shared_url)
    assert [row["task_id"] for row in grns("export", "--kind", "evt.task.cancelled").rows] == [ids[0]]
    kinds = [
        row["kind"] for row in grns("export", "--task", ids[0], "--kind", "evt.*.*", "--since", "1h").rows
    ]
    assert kinds == ["evt.task.queued", "evt.task.cancelled"]
    assert grns("export", "--until", "1h").rows == []
    assert grns("export", "--workspace", "other").rows[0]["workspace"] == "other"


@pytest.mark.parametrize(
    ("said", "says"),
    [
        (("--kind", "task.dead"), "is not a kind"),
        (("--after", "-1"), "not in the range"),
        (("--after", "x"), "not a valid integer"),
        (("--since", "yesterday"), "neither a duration nor a time"),
        (("--until", "2026-01-01T00:00:00"), "has no zone"),
        (("--task", "a.b"), "task id must be"),
    ],
)
def test_what_is_typed_wrong_is_said(grns: Call, said: tuple[str, ...], says: str) -> None:
    refused = grns("export", *said)
    assert (refused.code, refused.out) == (2, "")
    assert says in refused.err


def test_what_was_deleted_between_is_told(grns: Call, shared_url: str) -> None:
    with_tasks(shared_url)
    first = grns("export").rows[0]["seq"]
    told = grns("export", "--after", "0", "--kind", "evt.task.cancelled")
    assert (f"the log begins at {first} now" in told.err) == (first > 1)


def test_a_tail_outlives_postgres_and_says_where_it_was(
    grns: Call, shared_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on when the database is back, and ends where it is told to."""
    ids = with_tasks(shared_url)
    looks = iter([UnavailableError("gone"), UnavailableError("gone"), None])
    page = EventLog.page

    async def shaky(self: EventLog) -> Any:
        trouble = next(looks, KeyboardInterrupt())
        if isinstance(trouble, BaseException):
            raise trouble
        return await page(self)

    monkeypatch.setattr(EventLog, "page", shaky)
    monkeypatch.setattr("grns.cli.event._AWAY_SECONDS", 0.01)
    monkeypatch.setattr("grns.cli.event._PAUSE_SECONDS", 0.01)
    told = grns("tail", "--after", "0", "-o", "jsonl", "--kind", "evt.task.queued")
    assert told.code == 130
    assert [row["task_id"] for row in told.rows] == ids
    assert told.err.count("waiting: gone") == 1
    assert "following evt.task.queued of workspace default" in told.err
    assert "continue with --after " in told.err
