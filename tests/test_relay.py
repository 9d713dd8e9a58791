"""How much of the log the relay reads at a time."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

from grns.relay import _FIRST_ROWS, _MOST_ROWS, _READ_BYTES, _next_limit
from grns.store.log import Entry


def rows(count: int, size: int) -> list[Entry]:
    """Return rows of the log whose payloads have this size."""
    now = datetime.now(UTC)
    return [
        Entry(n, 1, str(uuid4()), "default", "gr-0", "dlq.task.dead", None, "t", None, "x" * size, now)
        for n in range(count)
    ]


def test_small_rows_are_read_by_the_thousand() -> None:
    limit, reads = _FIRST_ROWS, 0
    while limit < _MOST_ROWS:
        limit, reads = _next_limit(limit, rows(limit, 500)), reads + 1
    assert (limit, reads) == (_MOST_ROWS, 4)
    assert _next_limit(limit, rows(limit, 500)) == _MOST_ROWS
    assert _next_limit(limit, []) == _MOST_ROWS


def test_large_rows_are_read_a_few_at_a_time() -> None:
    limit = _next_limit(_FIRST_ROWS, rows(_FIRST_ROWS, 350_000))
    assert 10 < limit < _FIRST_ROWS
    assert limit * 350_000 <= _READ_BYTES
    assert _next_limit(limit, rows(limit, 350_000)) == 2 * limit, "and carefully more"
    assert _next_limit(1, rows(1, _READ_BYTES + 1)) == 1
