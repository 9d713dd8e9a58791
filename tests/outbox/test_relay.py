"""How much of the log the relay reads at a time, and what it does with that."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

import asyncpg
import pytest

from grns.dev.servers import LocalNats
from grns.outbox.log import FIRST_ROWS, MOST_ROWS, READ_BYTES, LogEntry, next_rows
from grns.postgres.database import Database
from tests.support.harness import eventually, is_relayed, read_stream
from tests.support.relays import knows_the_streams, relaying


def rows(count: int, size: int) -> list[LogEntry]:
    """Return rows of the log whose payloads have this size."""
    now = datetime.now(UTC)
    return [
        LogEntry(n, 1, str(uuid4()), "default", "gr-0", "dlq.task.dead", None, "t", None, "x" * size, now)
        for n in range(count)
    ]


def test_small_rows_are_read_by_the_thousand() -> None:
    limit, reads = FIRST_ROWS, 0
    while limit < MOST_ROWS:
        limit, reads = next_rows(limit, rows(limit, 500)), reads + 1
    assert (limit, reads) == (MOST_ROWS, 4)
    assert next_rows(limit, rows(limit, 500)) == MOST_ROWS
    assert next_rows(limit, []) == MOST_ROWS


def test_large_rows_are_read_a_few_at_a_time() -> None:
    limit = next_rows(FIRST_ROWS, rows(FIRST_ROWS, 350_000))
    assert 10 < limit < FIRST_ROWS
    assert limit * 350_000 <= READ_BYTES
    assert next_rows(limit, rows(limit, 350_000)) == 2 * limit, "and carefully more"
    assert next_rows(1, rows(1, READ_BYTES + 1)) == 1


_VERSION = """
    insert into grns.events (version, workspace, task_id, kind, trace_id, payload)
    select n, 'default', $3::text, 'evt.agent.a.b', 'trace', '{}' from generate_series($1::int, $2::int) as n
"""


@pytest.mark.usefixtures("in_environment")
async def test_what_lies_behind_late_rows_that_were_cut_off_waits_for_them(
    database: Database, database_url: str, broker: LocalNats, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction commits late, and more than a reading takes: its last rows are not published first."""
    monkeypatch.setattr("grns.outbox.relay.FIRST_ROWS", 2)
    monkeypatch.setattr("grns.outbox.relay.next_rows", lambda *_: 2)
    late = await asyncpg.connect(database_url)
    try:
        transaction = late.transaction()
        await transaction.start()
        await late.execute(_VERSION, 1, 6, "gr-late")
        async with database.connection() as other:
            await other.execute(_VERSION, 1, 1, "gr-other")
        async with relaying():

            async def is_beyond() -> bool:
                return await knows_the_streams(database) and bool(await read_stream(broker.url, "GRNS_EVT"))

            await eventually(is_beyond)
            await late.execute(_VERSION, 7, 9, "gr-late")
            await transaction.commit()
            await eventually(lambda: is_relayed(database))
    finally:
        await late.close()
    heard = await read_stream(broker.url, "GRNS_EVT")
    versions = [int(one.headers["Grns-Version"]) for one in heard if one.headers["Grns-Task"] == "gr-late"]
    assert versions == list(range(1, 10)), "versions in order"
