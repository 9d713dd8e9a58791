"""House-keeping: what is past its time goes, in small batches, and nothing that is still needed."""

from __future__ import annotations

import asyncio

import pytest

from grns.bootstrap import services as daemons
from grns.bootstrap.app import App
from grns.errors import UnavailableError
from grns.maintenance.failovers import failovers, note_server
from grns.maintenance.partitions import PARTITIONS_AHEAD, keep_partitions
from grns.maintenance.retention import delete_tasks
from grns.postgres.database import Database
from grns.telemetry.service_signals import (
    ChoresFailed,
    GaugesMeasured,
    InvariantChecked,
    PostgresFailedOver,
    RowsDeleted,
)
from grns.telemetry.signal import Signal
from tests.support.harness import eventually, settings_for, submit_many
from tests.support.store import ROADS, cancel, deleted, fetch, finish, place, stranger

DAY = 86_400.0
ROWS = 2_000_000


async def partitions(database: Database) -> list[str]:
    """Return the partitions of the log, oldest first."""
    return [
        row["name"]
        for row in await fetch(database, "select name from grns.log_partitions order by lower_seq")
    ]


async def tables(database: Database) -> int:
    """Return how many tables there are that were made for the log."""
    rows = await fetch(
        database,
        "select count(*) as n from pg_tables where schemaname = 'grns' and tablename ~ '^events_[0-9]'",
    )
    return int(rows[0]["n"])


async def age(database: Database, days: float) -> None:
    """Let everything in the log have happened long ago."""
    await fetch(database, "update grns.events set created_at = now() - $1 * interval '1 day'", days)


async def read_up_to(database: Database, low: int, counted: int | None = None) -> None:
    """Let the relay be done with the log up to a number, and the counter up to there or to another one."""
    await fetch(database, "update grns.relay_cursor set low = $1", low)
    await fetch(database, "update grns.count_cursor set low = $1", low if counted is None else counted)
    await fetch(database, "update grns.text_cursor set low = $1", low)
    await fetch(database, "update grns.follow_cursor set low = $1", low)


async def use_up(database: Database, number: int) -> None:
    """Let the log have got to a number."""
    await fetch(database, "select setval('grns.events_seq', $1)", number)


async def test_there_are_always_three_partitions_ahead(database: Database) -> None:
    before = await partitions(database)
    await keep_partitions(database, ROWS, DAY)
    assert await partitions(database) == before, "a new log has enough of them"
    await submit_many(database, 1)
    await use_up(database, 2 * ROWS + 5)
    await keep_partitions(database, ROWS // 2, DAY)
    after = await partitions(database)
    assert after[:4] == before
    assert after[4:] == [f"events_{number:019}" for number in (4 * ROWS + 1, 4 * ROWS + ROWS // 2 + 1)]
    await use_up(database, 4 * ROWS + ROWS // 2 + 500)
    await submit_many(database, 1)
    await keep_partitions(database, ROWS // 2, DAY)
    assert len(await partitions(database)) == 6 + 3


async def test_a_long_log_has_large_partitions_and_not_many(database: Database) -> None:
    """Each read of the log locks them all, whatever it looks for."""
    kept = 1_000_000
    for number in range(4 * ROWS, 5 * ROWS, 50_000):
        await use_up(database, number)
        await read_up_to(database, number - kept)
        await keep_partitions(database, 1000, DAY)
        # What is below the watermark is gone: nothing was ever written there.
        (log,) = await fetch(
            database, "select min(lower_seq) as low, max(upper_seq) as high from grns.log_partitions"
        )
        assert log["low"] > number - kept - ROWS
        assert log["high"] > number, "there is room"
        assert len(await partitions(database)) <= 50 + PARTITIONS_AHEAD


async def test_a_partition_is_made_beside_a_stranger_who_writes(database: Database) -> None:
    async with stranger(database) as connection:
        await connection.execute("select grns.submit_task('noop')")
        await use_up(database, 2 * ROWS + 5)
        await keep_partitions(database, ROWS, DAY)
    assert len(await partitions(database)) == 6


@pytest.mark.parametrize(
    ("days", "low", "counted", "is_kept"),
    [
        pytest.param(31, ROWS, ROWS, False, id="old_relayed_and_counted"),
        pytest.param(31, ROWS - 1, ROWS, True, id="one_row_not_relayed"),
        pytest.param(31, ROWS, ROWS - 1, True, id="one_row_not_counted"),
        pytest.param(29, ROWS, ROWS, True, id="young"),
    ],
)
async def test_a_partition_goes_when_it_is_old_and_below_the_watermarks(
    database: Database, days: float, low: int, counted: int, is_kept: bool
) -> None:
    await submit_many(database, 2)
    await age(database, days)
    await use_up(database, ROWS + 5)
    (late,) = await submit_many(database, 1)
    await read_up_to(database, low, counted)
    first = (await partitions(database))[0]
    await keep_partitions(database, ROWS, 30 * DAY)
    await keep_partitions(database, ROWS, 30 * DAY)
    left = await partitions(database)
    assert (first in left) == is_kept
    assert await tables(database) == len(left), "what was taken off the log is dropped"
    assert len(await fetch(database, "select from grns.events where task_id = $1", late)) == 1


async def test_the_partition_that_is_written_never_goes(database: Database) -> None:
    await submit_many(database, 1)
    await age(database, 1000)
    await read_up_to(database, 2)
    await keep_partitions(database, ROWS, DAY)
    assert len(await partitions(database)) == 4


@pytest.mark.parametrize(
    ("high", "low", "is_kept"),
    [
        pytest.param(ROWS + 5, ROWS, False, id="used_up_and_relayed"),
        pytest.param(ROWS + 5, ROWS - 1, True, id="one_number_not_relayed"),
        pytest.param(ROWS - 1, ROWS, True, id="one_number_not_used_up"),
    ],
)
async def test_an_empty_partition_goes_once_nothing_can_come_into_it(
    database: Database, high: int, low: int, is_kept: bool
) -> None:
    """Submissions that were undone have taken all of its numbers."""
    await use_up(database, high)
    await read_up_to(database, low)
    first = (await partitions(database))[0]
    await keep_partitions(database, ROWS, DAY)
    assert (first in await partitions(database)) == is_kept


async def test_a_stranger_who_reads_the_log_delays_it_and_breaks_nothing(database: Database) -> None:
    await submit_many(database, 1)
    await age(database, 31)
    await use_up(database, ROWS + 5)
    await submit_many(database, 1)
    await read_up_to(database, ROWS)
    async with stranger(database) as connection:
        await connection.fetch("select from grns.events")
        await keep_partitions(database, ROWS, 30 * DAY)
        await submit_many(database, 1)
    await keep_partitions(database, ROWS, 30 * DAY)
    await keep_partitions(database, ROWS, 30 * DAY)
    left = await partitions(database)
    assert f"events_{1:019}" not in left
    assert await tables(database) == len(left)


@pytest.mark.parametrize("road", ROADS)
async def test_only_tasks_that_ended_long_ago_go(shared: Database, road: str) -> None:
    task_id = (await place(shared, road)).id
    await fetch(
        shared,
        "update grns.tasks set created_at = now() - interval '60 days', updated_at = created_at,"
        " finished_at = case when finished_at is not null then now() - interval '60 days' end",
    )
    status = (await fetch(shared, "select status from grns.tasks where id = $1", task_id))[0]["status"]
    page = await delete_tasks(shared, "", 10, 61 * DAY, 61 * DAY)
    assert (page.seen, page.deleted, page.last_id) == (1, 0, task_id)
    page = await delete_tasks(shared, "", 10, 59 * DAY, 90 * DAY)
    assert page.deleted == (status in ("succeeded", "cancelled"))
    page = await delete_tasks(shared, "", 10, 90 * DAY, 59 * DAY)
    assert page.deleted == (status in ("dead", "failed"))


async def test_the_walk_goes_over_all_tasks_in_pages(shared: Database) -> None:
    ids = sorted(await submit_many(shared, 7))
    gone = ids[1::2]
    await cancel(shared, *gone)
    await fetch(
        shared, "update grns.tasks set finished_at = now() - interval '2 days' where finished_at is not null"
    )
    after, seen, deleted = "", 0, 0
    while (page := await delete_tasks(shared, after, 3, DAY, DAY)).seen:
        assert page.seen <= 3
        assert page.last_id > after
        after, seen, deleted = page.last_id, seen + page.seen, deleted + page.deleted
    assert (seen, deleted) == (7, 3)
    assert page.last_id == ""
    assert sorted(row["id"] for row in await fetch(shared, "select id from grns.tasks")) == ids[::2]


async def test_what_was_counted_is_forgotten_by_age(shared: Database) -> None:
    """An issue goes with its hours and facets, what was not seen for long first; not while a task has it."""
    async with shared.connection() as connection:
        await connection.execute(_COUNTED)
        await connection.execute("update grns.issues set open_count = 1 where fingerprint = 'issue-9'")
    assert await deleted(shared, "delete_task_minutes", 3, 4.5 * DAY) == 3
    assert await deleted(shared, "delete_task_minutes", 3, 4.5 * DAY) == 2
    assert await deleted(shared, "delete_task_minutes", 3, 4.5 * DAY) == 0
    assert await deleted(shared, "delete_issue_hours", 100, 6.5 * DAY) == 3
    assert await deleted(shared, "delete_issues", 2, 4.5 * DAY) == 2
    rows = await fetch(shared, "select fingerprint from grns.issues order by 1")
    assert [row["fingerprint"] for row in rows] == [f"issue-{days}" for days in (*range(7), 9)]
    await fetch(shared, "update grns.issues set open_count = 0")
    assert await deleted(shared, "delete_issues", 100, 4.5 * DAY) == 3
    for table in ("issues", "issue_hours", "issue_facets", "task_minutes"):
        assert len(await fetch(shared, f"select from grns.{table}")) == 5, table


# One of each for each of the last ten days.
_COUNTED = """
    insert into grns.task_minutes
    select 'default', now() - n * interval '1 day', 'noop', 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1
    from generate_series(0, 9) as n;
    insert into grns.issues (workspace, fingerprint, error_class, message, sample_task_id, first_seen,
        last_seen, total, open_count)
    select 'default', 'issue-' || n, 'ValueError', 'no', 'gr-1', now() - interval '99 days',
        now() - n * interval '1 day', 1, 0
    from generate_series(0, 9) as n;
    insert into grns.issue_hours
    select 'default', 'issue-' || n, now() - n * interval '1 day', 1 from generate_series(0, 9) as n;
    insert into grns.issue_facets
    select 'default', 'issue-' || n, 'worker', 'worker-1', 1 from generate_series(0, 9) as n;
"""


async def test_handled_messages_and_agents_are_forgotten_by_age(shared: Database) -> None:
    await fetch(
        shared,
        "insert into grns.processed_messages (consumer, message_id, processed_at)"
        " select 'c', gen_random_uuid(), now() - n * interval '1 day' from generate_series(0, 9) as n",
    )
    assert await deleted(shared, "delete_processed_messages", 3, 4.5 * DAY) == 3
    assert await deleted(shared, "delete_processed_messages", 3, 4.5 * DAY) == 2
    assert await deleted(shared, "delete_processed_messages", 3, 4.5 * DAY) == 0
    await fetch(
        shared,
        "insert into grns.workers (agent_id, workspace, agent_type, host, pid, version, concurrency,"
        " task_types, lease_seconds, last_seen_at)"
        " select 'a' || n, 'default', 'worker', 'h', 1, '0', 1, '{}', 15,"
        " now() - n * interval '1 day' from generate_series(0, 2) as n",
    )
    assert await deleted(shared, "delete_old_workers", 3, 1.5 * DAY) == 1


async def test_the_janitor_forgets_pages_until_one_is_not_full(shared: Database) -> None:
    """However many a tick leaves behind: the table does not grow with the load."""
    await fetch(
        shared,
        "insert into grns.processed_messages (consumer, message_id, processed_at)"
        " select 'c', gen_random_uuid(), now() - n * interval '1 day' from generate_series(0, 9) as n,"
        " generate_series(1, 500)",
    )
    await fetch(
        shared,
        "insert into grns.replays (workspace, patterns, since, until, ended_at, outcome)"
        " select null, '{}', now(), now(), now() - n * interval '1 day', 'done'"
        " from generate_series(0, 9) as n, generate_series(1, 300)",
    )
    # What was handled is remembered for as long as the log can bring it back.
    app = App(settings_for(shared.url, janitor_interval_seconds=3600.0, log_retention_days=3.5))
    janitor = daemons.janitor(app, shared, app.transport("test"))
    running = asyncio.create_task(janitor.run())

    async def left() -> tuple[int, int]:
        (row,) = await fetch(
            shared,
            "select (select count(*) from grns.processed_messages) as messages,"
            " (select count(*) from grns.replays) as replays",
        )
        return row["messages"], row["replays"]

    async def are_forgotten() -> bool:
        return await left() == (4 * 500, 4 * 300)

    await eventually(are_forgotten)
    janitor.stop()
    await running
    assert await left() == (4 * 500, 4 * 300), "and no more than that"


_OLD_OF_EACH = """
    insert into grns.processed_messages (consumer, message_id, processed_at)
    values ('c', gen_random_uuid(), now() - interval '99 days');
    insert into grns.replays (workspace, patterns, since, until, ended_at, outcome)
    values (null, '{}', now(), now(), now() - interval '99 days', 'done');
    insert into grns.workers (agent_id, workspace, agent_type, host, pid, version, concurrency, task_types,
        lease_seconds, last_seen_at)
    values ('new', 'default', 'worker', 'h', 1, '0', 1, '{}', 15, now()),
        ('old', 'default', 'worker', 'h', 1, '0', 1, '{}', 15, now() - interval '99 days');
    update grns.tasks set finished_at = now() - interval '99 days' where finished_at is not null;
"""


class _Told:
    """Keeps which chores of the janitor have told of a success, and which of a failure."""

    def __init__(self) -> None:
        self.done: set[str] = set()
        self.failed: set[str] = set()

    def receive(self, signal: Signal) -> None:
        """Take note of one signal."""
        match signal:
            case RowsDeleted():
                self.done.add(signal.table)
            case GaugesMeasured(metric="grns_queue_oldest_seconds"):
                self.done.add("queue_ages")
            case InvariantChecked():
                self.done.add("inspection")
            case PostgresFailedOver():
                self.done.add("failover")
            case ChoresFailed():
                self.failed.update(signal.chores)


@pytest.mark.parametrize(
    ("table", "held_up"),
    [
        ("server", {"failover"}),
        ("workers", {"queue_ages", "old_workers"}),
        ("processed_messages", {"processed_messages"}),
        ("tasks", {"queue_ages", "inspection"}),
    ],
)
async def test_a_chore_that_fails_is_told_and_ends_no_other(
    shared: Database, table: str, held_up: set[str]
) -> None:
    await place(shared, "succeeded")
    async with shared.connection() as connection:
        await connection.execute(_OLD_OF_EACH)
    await note_server(shared)
    await fetch(shared, "update grns.server set timeline = 99")
    told = _Told()
    app = App(settings_for(shared.url, janitor_interval_seconds=0.5), (told,))
    hurried = Database(shared.url, name="hurried", answer_seconds=1.0)
    janitor = daemons.janitor(app, hurried, app.transport("test"))
    chores = {"failover", "queue_ages", "processed_messages", "workers", "replays", "tasks", "inspection"}
    async with hurried.opened():
        async with stranger(shared) as connection:
            await connection.execute(f"lock table grns.{table}")
            running = asyncio.create_task(janitor.run())

            async def have_failed() -> bool:
                # Retention tries with ever smaller pages before it tells.
                return told.failed >= held_up and told.done >= chores - held_up - {table}

            await eventually(have_failed)
            assert not told.done & held_up

        async def are_all_done() -> bool:
            return told.done == chores

        await eventually(are_all_done)
        janitor.stop()
        await running
    assert "unserved" in told.failed, "there is no broker here"


# One that has not ended, however old, and five that ended, a day between each two.
_REPLAYS = """
    insert into grns.replays (workspace, patterns, since, until, requested_at, ended_at, outcome)
    select null, '{}', now() - interval '99 days', now() - interval '98 days', now() - interval '90 days',
        now() - n * interval '1 day', case when n is not null then 'done' end
    from unnest(array[null, 1, 2, 3, 4, 5]) as n
"""


async def ages(database: Database) -> list[int | None]:
    """Return how many days ago the replays have ended that are still known."""
    rows = await fetch(
        database, "select extract(day from now() - ended_at)::integer as n from grns.replays order by id"
    )
    return [row["n"] for row in rows]


async def test_replays_that_have_ended_are_forgotten_by_age(shared: Database) -> None:
    await fetch(shared, _REPLAYS)
    assert await deleted(shared, "delete_replays", 2, 2.5 * DAY) == 2
    assert await ages(shared) == [None, 1, 2, 3], "the oldest first"
    assert await deleted(shared, "delete_replays", 2, 2.5 * DAY) == 1
    assert await deleted(shared, "delete_replays", 2, 2.5 * DAY) == 0
    assert await ages(shared) == [None, 1, 2]


async def test_the_janitor_forgets_replays_with_the_log(shared: Database) -> None:
    await fetch(shared, _REPLAYS)
    await fetch(
        shared,
        "insert into grns.failovers (noticed_at, last_seen_at, old_system_identifier, old_timeline,"
        " new_system_identifier, new_timeline)"
        " select now() - interval '9 years', now() - interval '9 years', '1', 1, '1', 2",
    )
    app = App(settings_for(shared.url, log_retention_days=3.5))
    janitor = daemons.janitor(app, shared, app.transport("test"))
    running = asyncio.create_task(janitor.run())

    async def are_forgotten() -> bool:
        return await ages(shared) == [None, 1, 2, 3]

    await eventually(are_forgotten)
    janitor.stop()
    await running
    assert len(await failovers(shared, 0)) == 1, "of these there are few"


async def test_without_room_in_the_log_everybody_waits_and_nothing_is_refused(database: Database) -> None:
    """What cannot be logged has not happened: it is asked for again, and blames nobody's values."""
    running = await place(database, "running")
    last = (await partitions(database))[-1]
    rows = await fetch(database, "select upper_seq from grns.log_partitions where name = $1", last)
    await use_up(database, rows[0]["upper_seq"])
    with pytest.raises(UnavailableError, match="janitor"):
        await submit_many(database, 1)
    with pytest.raises(UnavailableError, match="janitor"):
        await finish(database, running)
    await keep_partitions(database, ROWS, DAY)
    assert (await finish(database, running)).status == "succeeded"
