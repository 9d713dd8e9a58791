"""What a stream has not taken: tried again soon, and seldom where that is in vain."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from uuid import uuid4

import pytest

from grns.outbox.log import LogEntry
from grns.outbox.message import OutboxMessage
from grns.outbox.retry_queue import _FEWEST_TRIALS, _LONGEST_PAUSE_SECONDS, RetryQueue


class Clock:
    """The time, as the test says."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    """A clock that stands still."""
    return Clock()


@pytest.fixture
def backlog(clock: Clock) -> RetryQueue:
    """What one stream has not taken."""
    return RetryQueue(clock)


def parcels(count: int) -> list[OutboxMessage]:
    """Return rows of different tasks."""
    now = datetime.now(UTC)
    return [
        OutboxMessage(LogEntry(n, 1, str(uuid4()), "default", f"gr-{n}", "evt.a", None, "t", None, "{}", now))
        for n in range(count)
    ]


def due(backlog: RetryQueue) -> Iterator[OutboxMessage]:
    """Take all that is to be tried now."""
    while (parcel := backlog.due()) is not None:
        yield parcel


def test_a_stream_that_takes_nothing_is_seldom_asked(backlog: RetryQueue, clock: Clock) -> None:
    for parcel in parcels(5000):
        backlog.keep_failed(parcel)
    assert backlog.is_blocked
    tries = 0
    for _ in range(600):  # a minute
        clock.now += 0.1
        trials = list(due(backlog))
        assert len(trials) <= _FEWEST_TRIALS
        for parcel in trials:
            backlog.keep_failed(parcel)
        tries += len(trials)
    assert 25 * _FEWEST_TRIALS < tries < 40 * _FEWEST_TRIALS


def test_once_it_takes_something_all_the_rest_is_tried(backlog: RetryQueue, clock: Clock) -> None:
    for parcel in (waiting := parcels(5000)):
        backlog.keep_failed(parcel)
    for _ in range(200):
        clock.now += 0.1
        for parcel in list(due(backlog)):
            backlog.keep_failed(parcel)
    clock.now += _LONGEST_PAUSE_SECONDS
    taken: set[int] = set()
    for _ in range(30):  # each an answer of the broker, and no time between
        for parcel in list(due(backlog)):
            backlog.note_taken(parcel)
            taken.add(parcel.entry.seq)
    assert taken == {parcel.entry.seq for parcel in waiting}
    assert not backlog
    assert not backlog.is_blocked


def test_one_that_always_fails_blocks_nothing(backlog: RetryQueue, clock: Clock) -> None:
    (bad,) = parcels(1)
    backlog.keep_failed(bad)
    tries = 0
    for _ in range(600):
        clock.now += 0.1
        for parcel in list(due(backlog)):
            backlog.keep_failed(parcel)
            tries += 1
    assert not backlog.is_blocked
    assert 25 < tries < 40, "and is tried with growing pauses"
