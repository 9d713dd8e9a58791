"""The log as the relay reads it: what is late, what never comes, and whose word on it counts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from uuid import UUID

import asyncpg
import pytest

from grns.model.task import command_id
from grns.outbox import log
from grns.outbox.message import command_of
from grns.outbox.watermark import Watermark
from grns.postgres.database import Database
from grns.runtime.leader import LeaderLease
from tests.chaos.proxy import Proxy
from tests.support.harness import eventually, submit_many
from tests.support.store import fetch, is_waiting_for_lock, place, stranger

MUCH = 1_000_000  # bytes

_APPEND = (
    "insert into grns.events (version, workspace, kind, trace_id, payload)"
    " values (1, 'default', 'evt.agent.a.b', 'trace', '{}') returning seq"
)


class Reader:
    """Reads the log as the relay does, and knows what it has been shown."""

    def __init__(self, database: Database, low: int) -> None:
        self._database = database
        self.progress = Watermark(low)

    async def read(self, limit: int = 1000) -> list[int]:
        """Read once; returns the numbers that were shown for the first time."""
        known = self.progress
        known.bound(
            (await fetch(self._database, "select pg_current_xact_id()::text::bigint as xid"))[0]["xid"]
        )
        reading = await log.read(self._database, known.missing, known.high, limit)
        numbers = [entry.seq for entry in reading.entries]
        numbers = numbers[: known.take(numbers, xmin=reading.xmin, limit=limit)]
        for number in numbers:
            known.done.add(number)
        return numbers


@pytest.fixture
async def reader(shared: Database) -> Reader:
    """A relay that is done with everything so far."""
    return Reader(shared, int((await fetch(shared, "select nextval('grns.events_seq') as n"))[0]["n"]))


@pytest.fixture
async def strangers(shared: Database) -> AsyncIterator[Sequence[asyncpg.Connection]]:
    """Three open transactions of strangers."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(stranger(shared)) for _ in range(3)]


async def append(on: Database | asyncpg.Connection) -> int:
    """Write one row of the log, and return its number."""
    return int((await fetch(on, _APPEND) if isinstance(on, Database) else await on.fetch(_APPEND))[0]["seq"])


async def test_rows_come_in_order_and_once(shared: Database, reader: Reader) -> None:
    numbers = [await append(shared) for _ in range(5)]
    assert await reader.read() == numbers
    assert await reader.read() == []
    assert reader.progress.done.low == numbers[-1]


async def test_a_row_holds_what_is_published(shared: Database, reader: Reader) -> None:
    (task_id,) = await submit_many(shared, 1, trace_id="tr-7")
    reading = await log.read(shared, [], reader.progress.high, 10)
    (event,) = reading.entries
    assert (event.kind, event.route) == ("evt.task.queued", "worker.p2")
    command = command_of(event, "worker.p2")
    assert UUID(command.message_id) == command_id(UUID(event.message_id))
    assert (command.kind, command.causation_id) == ("cmd.task.execute", event.message_id)
    assert json.loads(command.payload) == {
        "task_id": task_id, "target_agent_type": "worker", "reason": "new_task",
    }  # fmt: skip
    for entry in (event, command):
        assert (entry.task_id, entry.workspace, entry.version, entry.trace_id) == (
            task_id,
            "default",
            1,
            "tr-7",
        )
    assert event.message_id != command.message_id


async def test_what_commits_late_is_found_where_it_was_missing(
    shared: Database, reader: Reader, strangers: Sequence[asyncpg.Connection]
) -> None:
    first, second, _ = strangers
    early, between = await append(first), await append(shared)
    late, last = await append(second), await append(shared)
    assert await reader.read() == [between, last]
    assert reader.progress.missing == [(early, between), (late, last)]
    await second.execute("commit")
    assert await reader.read() == [late]
    await first.execute("commit")
    assert await reader.read() == [early]
    assert (reader.progress.missing, reader.progress.done.low) == ([], last)


async def test_a_strangers_open_transaction_stalls_nothing(
    shared: Database, reader: Reader, strangers: Sequence[asyncpg.Connection]
) -> None:
    """One that has written, one that has taken a number, and one that only looks."""
    await strangers[0].execute("create table public.of_a_stranger ()")
    taken = await append(strangers[1])
    await strangers[2].execute("set transaction isolation level repeatable read; select 1 from grns.events")
    for _ in range(3):
        number = await append(shared)
        assert await reader.read() == [number]
    assert reader.progress.missing == [(taken, taken + 1)]
    assert reader.progress.done.low == taken - 1


async def test_a_gap_is_given_up_when_nobody_can_fill_it_any_more(
    shared: Database, reader: Reader, strangers: Sequence[asyncpg.Connection]
) -> None:
    undone, open_one, _ = strangers
    await open_one.execute("select pg_current_xact_id()")
    number = await append(undone)
    after = await append(shared)
    assert await reader.read() == [after]
    await undone.execute("rollback")
    assert await reader.read() == []
    assert reader.progress.missing == [(number, after)], "another one, as old as the gap, is still under way"
    await open_one.execute("commit")
    await reader.read()
    assert (reader.progress.missing, reader.progress.done.low) == ([], after)


async def test_a_younger_transaction_does_not_keep_a_gap_open(
    shared: Database, reader: Reader, strangers: Sequence[asyncpg.Connection]
) -> None:
    number = await append(strangers[0])
    await append(shared)
    for _ in range(2):
        await reader.read()
        assert reader.progress.missing == [(number, number + 1)]
    await strangers[1].execute("select pg_current_xact_id()")
    await strangers[0].execute("rollback")
    await reader.read()
    assert reader.progress.missing == []


async def test_a_transaction_that_is_younger_than_all_that_have_ended_is_waited_for(
    shared: Database, reader: Reader, strangers: Sequence[asyncpg.Connection]
) -> None:
    """No snapshot knows of it: its upper bound is that of what has ended."""
    older, younger, _ = strangers
    await older.execute("select pg_current_xact_id()")
    early, late = await append(younger), await append(older)
    await older.execute("commit")
    known = reader.progress
    reading = await log.read(shared, [], known.high, 10)
    assert [entry.seq for entry in reading.entries] == [late]
    known.see([], [late], xmin=reading.xmin, is_late_cut=False)
    for _ in range(3):
        assert await reader.read() == []
        assert known.missing == [(early, late)]
    await younger.execute("commit")
    assert await reader.read() == [early]


async def test_the_number_is_never_older_than_its_transaction(
    shared: Database, strangers: Sequence[asyncpg.Connection]
) -> None:
    """A number taken before the transaction has its id could turn up after the gap was given up."""
    rows = await strangers[0].fetch(
        "select pg_current_xact_id_if_assigned()::text as before, column_default as default"
        " from information_schema.columns where table_schema = 'grns' and table_name = 'events'"
        " and column_name = 'seq'"
    )
    assert rows[0]["before"] is None
    assert rows[0]["default"].index("pg_current_xact_id") < rows[0]["default"].index("nextval")
    rows = await fetch(shared, "select seqcache, is_identity from pg_sequence, information_schema.columns"
        " where seqrelid = 'grns.events_seq'::regclass and table_schema = 'grns' and table_name = 'events'"
        " and column_name = 'seq'")  # fmt: skip
    assert (rows[0]["seqcache"], rows[0]["is_identity"]) == (1, "NO")


async def test_a_long_backlog_is_read_in_parts(
    shared: Database, reader: Reader, strangers: Sequence[asyncpg.Connection]
) -> None:
    """Late ones, more than fit into one reading, hide nothing that lies behind them."""
    late = [await append(strangers[0]) for _ in range(7)]
    fresh = [await append(shared)]
    assert await reader.read(3) == fresh
    await strangers[0].execute("commit")
    fresh = [await append(shared) for _ in range(4)]
    seen: list[int] = []
    for _ in range(6):
        seen += await reader.read(3)
    assert sorted(set(seen)) == late + fresh
    assert (reader.progress.missing, reader.progress.done.low) == ([], fresh[-1])


async def test_a_stretch_of_some_kinds_is_read_again(shared: Database, reader: Reader) -> None:
    await submit_many(shared, 3)
    low = reader.progress.high
    page = await log.read_range(shared, low, low + 4, 10, MUCH, [r"^evt\."])
    assert {entry.kind for entry in page.entries} == {"evt.task.queued"}
    assert all(low < entry.seq <= low + 4 for entry in page.entries)
    await place(shared, "failed")
    letters = (await log.read_range(shared, low, low + 100, 20, MUCH, [r"^dlq\."])).entries
    assert [entry.kind for entry in letters] == ["dlq.task.failed"]
    both = (await log.read_range(shared, low, low + 100, 20, MUCH, [r"^dlq\.", r"^evt\."])).entries
    assert {entry.kind for entry in both} == {
        "evt.task.queued", "evt.task.claimed", "evt.task.failed", "dlq.task.failed"
    }  # fmt: skip


async def test_of_a_kind_that_is_rare_no_more_is_looked_at_than_a_page(
    shared: Database, reader: Reader
) -> None:
    """However far apart its rows stand: the answer comes soon, and says how far it got."""
    low = reader.progress.high
    numbers = [await append(shared) for _ in range(7)]
    await fetch(shared, "update grns.events set kind = 'dlq.task.dead' where seq = $1", numbers[5])
    after, pages = low, []
    while (
        page := await log.read_range(shared, after, low + 1000, 3, MUCH, [r"^dlq\."])
    ).last_seq is not None:
        after = page.last_seq
        pages.append((after, [entry.seq for entry in page.entries]))
    assert pages == [(numbers[2], []), (numbers[5], [numbers[5]]), (numbers[6], [])]
    assert not page.entries


async def test_a_page_of_large_rows_ends_early_and_the_next_goes_on_there(
    shared: Database, reader: Reader
) -> None:
    """However large they are: one row is always in it, and the small ones between cost nothing."""
    low = reader.progress.high
    numbers = [await append(shared) for _ in range(12)]
    large = numbers[1::2]
    await fetch(
        shared,
        "update grns.events set kind = 'dlq.task.dead', payload = json_build_object('x', repeat('x', 10000))"
        " where seq = any($1::bigint[])",
        large,
    )
    pages, after = [], low
    while after < numbers[-1]:
        page = await log.read_range(shared, after, low + 1000, 10, 25_000, [r"^dlq\."])
        assert page.last_seq is not None
        after = page.last_seq
        pages.append([entry.seq for entry in page.entries])
    assert pages == [large[:3], large[3:]]
    page = await log.read_range(shared, low, low + 1000, 10, 1, [r"^dlq\."])
    assert [entry.seq for entry in page.entries] == large[:1]


async def test_the_first_row_that_is_young_enough_is_found(shared: Database) -> None:
    numbers = [await append(shared) for _ in range(9)]
    for age, number in enumerate(reversed(numbers)):
        await fetch(
            shared,
            "update grns.events set created_at = now() - $1 * interval '1 hour' where seq = $2", age, number,
        )  # fmt: skip
    last = numbers[-1]
    found = await log.first_near(shared, last, 3.5 * 3600, last)
    assert numbers[4] < found <= numbers[5]
    assert numbers[2] < await log.first_near(shared, numbers[6], 3.5 * 3600, last) <= numbers[3]
    assert await log.first_near(shared, last, 99 * 3600, last) <= numbers[0]
    assert await log.first_near(shared, 0, 0.0, last) > last, "there is no row: it is now"
    (row,) = await fetch(shared, "select created_at from grns.events where seq = $1", numbers[6])
    assert numbers[5] < await log.first_since(shared, row["created_at"], last) <= numbers[6]


async def test_rows_of_a_transaction_that_was_open_for_long_have_the_time_of_their_numbers(
    shared: Database,
) -> None:
    """Else they would seem older than what was written before them, and hide it from the bisection."""
    async with stranger(shared) as connection:
        await connection.execute("select pg_current_xact_id()")
        before = [await append(shared) for _ in range(3)]
        await connection.fetch("select grns.submit_task('noop') from generate_series(1, 20)")
        await connection.execute("commit")
    rows = await fetch(shared, "select seq, created_at from grns.events order by seq")
    assert [row["seq"] for row in rows[:3]] == before
    assert len(rows) == 3 + 20
    times = [row["created_at"] for row in rows]
    assert times == sorted(times)


async def test_it_is_found_in_one_round_trip_however_long_the_log_is(shared: Database) -> None:
    """The relay asks while its lead runs out: so many steps across a network would outlast it."""
    number = await append(shared)
    port = int(shared.url.rpartition("/")[0].rpartition(":")[2])
    network = Proxy(port)
    await network.start()
    far = Database(shared.url.replace(f":{port}/", f":{network.port}/"), name="far", size=1)
    try:
        async with far.opened():
            await log.first_near(far, 0, 3600.0, 0)
            network.latency_seconds = 0.05
            async with asyncio.timeout(2.0):
                assert await log.first_near(far, number, 3600.0, 2**60) <= number
    finally:
        await network.stop()


# ---------------------------------------------------------------- who leads


async def test_one_relay_leads_until_its_lease_is_over(shared: Database) -> None:
    first, second, third = (LeaderLease("relay", owner, 60.0) for owner in ("one", "two", "three"))
    assert await first.acquire(shared)
    cursor = await log.read_cursor(shared)
    assert not await second.acquire(shared)
    await fetch(shared, "update grns.leases set until = now() - interval '1 s'")
    assert await second.acquire(shared)
    assert second.epoch == first.epoch + 1
    assert not await log.hold(shared, first, replace(cursor, low=99)), "the old leader persists nothing"
    assert await log.read_cursor(shared) == cursor
    await first.release(shared)
    assert not await third.acquire(shared), "nor can it give away what is not its own"


async def test_lease_of_another_name_leads_nothing_here(shared: Database) -> None:
    relay, stats = LeaderLease("relay", "one", 60.0), LeaderLease("stats", "two", 60.0)
    assert await stats.acquire(shared)
    assert await stats.acquire(shared)
    assert await relay.acquire(shared)
    assert relay.epoch < stats.epoch
    assert not await log.hold(shared, stats, await log.read_cursor(shared))


async def test_a_statement_that_waits_while_the_lead_changes_persists_nothing(shared: Database) -> None:
    late = LeaderLease("relay", "one", 60.0)
    assert await late.acquire(shared)
    cursor = await log.read_cursor(shared)
    async with stranger(shared) as connection:
        await connection.execute("update grns.leases set epoch = epoch + 1, owner = 'two'")
        holding = asyncio.create_task(log.hold(shared, late, replace(cursor, low=99)))
        await eventually(lambda: is_waiting_for_lock(shared))
        await connection.execute("commit")
        assert await holding is None
    assert await log.read_cursor(shared) == cursor


async def test_a_cursor_is_not_persisted_on_another_timeline(shared: Database) -> None:
    """A pooler may hand the connection on to a server that lacks what the cursor says is published."""
    lease = LeaderLease("relay", "one", 60.0)
    assert await lease.acquire(shared)
    cursor = await log.read_cursor(shared)
    assert cursor.timeline >= 1
    assert not await log.hold(shared, lease, replace(cursor, timeline=cursor.timeline + 1, low=99))
    assert await log.hold(shared, lease, cursor)


async def test_the_cursor_comes_back_as_it_was_persisted(shared: Database) -> None:
    lease = LeaderLease("relay", "one", 60.0)
    assert await lease.acquire(shared)
    cursor = await log.read_cursor(shared)
    places = {
        "GRNS_EVT": log.LastAcknowledged("abc", 17, log.LostRange(2, 4)),
        "GRNS_DLQ": log.LastAcknowledged("def", 3, None, (log.Mark(2, 9), log.Mark(3, 11))),
    }
    persisted = replace(cursor, low=5, published=[(7, 9), (12, 13)], places=places)
    assert await log.hold(shared, lease, persisted)
    await lease.release(shared)
    assert await log.read_cursor(shared) == persisted


async def test_the_same_relay_may_come_back_on_another_connection(shared: Database) -> None:
    first, again = LeaderLease("relay", "one", 60.0), LeaderLease("relay", "one", 60.0)
    assert await first.acquire(shared)
    assert await again.acquire(shared)
    assert again.epoch == first.epoch + 1
    assert not await log.hold(shared, first, await log.read_cursor(shared))
