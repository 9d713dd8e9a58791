"""How far back scans look: never past what they may have missed."""

from __future__ import annotations

import time

import pytest

from grns.maintenance.scan_window import ScanWindow


class Clock:
    now = 1000.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", lambda: clock.now)
    return clock


def test_a_scan_looks_back_to_where_the_last_one_began_that_came_to_its_end(clock: Clock) -> None:
    window = ScanWindow()
    assert window.seconds() is None
    clock.now += 1
    assert window.seconds() is None, "the first one has not come to its end"
    clock.now += 2  # so long it took
    window.note_end()
    assert window.seconds() == 2 + 15
    clock.now += 20  # the process stood still, and there was more than one batch
    assert window.seconds() == 22 + 15
    window.note_end()
    clock.now += 1
    assert window.seconds() == 1 + 15


def test_everything_is_looked_at_twice_a_minute_and_after_a_hold(clock: Clock) -> None:
    window = ScanWindow()
    for _ in range(2):
        assert window.seconds() is None
        window.note_end()
        clock.now += 30
        assert window.seconds() == 30 + 15
        window.note_end()
        clock.now += 0.1
    assert window.seconds() is None
    window.note_end()
    window.forget()
    assert window.seconds() is None
