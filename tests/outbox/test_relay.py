"""How much of the log the relay reads at a time."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

from grns.outbox.log import FIRST_ROWS, MOST_ROWS, READ_BYTES, LogEntry, next_rows


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
