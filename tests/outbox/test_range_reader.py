"""What is read again of the log comes a page at a time, and no page takes long to send."""

from __future__ import annotations

import pytest

from grns.outbox import log
from grns.outbox.log import RangeReader
from grns.postgres.database import Database
from tests.support.store import fetch

_BYTES = 20_000


@pytest.mark.parametrize("patterns", [[r"^dlq\."], [r"^evt\.", r"^dlq\."]], ids=["letters", "everything"])
async def test_large_rows_behind_small_ones_come_a_few_at_a_time(
    database: Database, monkeypatch: pytest.MonkeyPatch, patterns: list[str]
) -> None:
    """The pages have grown by then; and each row that is wanted comes, once and in its order."""
    monkeypatch.setattr("grns.outbox.log.READ_BYTES", _BYTES)
    rows = await fetch(
        database,
        "insert into grns.events (version, workspace, kind, trace_id, payload)"
        " select 1, 'default', case when large then 'dlq.task.dead' else 'evt.a' end, 'trace',"
        " case when large then json_build_object('x', repeat('x', 1000)) else '{}' end"
        " from generate_series(1, 4000) as n, lateral (select n > 3000 and n % 2 = 0 as large) as s"
        " order by n returning seq, kind",
    )
    wanted = [row["seq"] for row in rows if len(patterns) == 2 or row["kind"] == "dlq.task.dead"]

    async def read(after: int, up_to: int, limit: int, most_bytes: int) -> log.LogRange:
        return await log.read_range(database, after, up_to, limit, most_bytes, patterns)

    pages, found, after = RangeReader(read), [], 0
    while after < rows[-1]["seq"]:
        after, entries = await pages.next(after, rows[-1]["seq"])
        assert sum(len(entry.payload) for entry in entries) < _BYTES + 1100
        found += [entry.seq for entry in entries]
    assert found == wanted
