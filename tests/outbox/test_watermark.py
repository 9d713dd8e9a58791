"""Spans and gaps: pure arithmetic, against sets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from grns.outbox.watermark import NumberRanges, Watermark


@given(st.lists(st.integers(1, 60)), st.integers(0, 10))
def test_spans_hold_what_was_put_in(numbers: list[int], low: int) -> None:
    spans = NumberRanges(low)
    for number in numbers:
        spans.add(number)
    expected = set(range(low + 1)) | set(numbers)
    assert {number for number in range(70) if number in spans} == expected
    assert spans.low == max(number for number in range(70) if set(range(number + 1)) <= expected)
    assert spans.high == max(expected)
    in_spans = set(range(spans.low + 1)).union(*(range(*span) for span in spans.beyond))
    assert in_spans == expected
    in_holes: set[int] = set().union(*(range(*hole) for hole in spans.holes)) if spans.holes else set()
    assert in_holes == set(range(max(expected))) - expected


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(1, 9))))
def test_spans_take_stretches_in(stretches: list[tuple[int, int]]) -> None:
    spans = NumberRanges(0)
    expected = {0}
    for start, length in stretches:
        spans.add_span(start, start + length)
        expected |= set(range(start, start + length))
    assert {number for number in range(70) if number in spans} == expected


@given(st.lists(st.integers(1, 60), unique=True), st.integers(0, 5))
def test_what_is_not_shown_is_missing(numbers: list[int], low: int) -> None:
    progress = Watermark(low)
    fresh = sorted(number for number in numbers if number > low)
    for part in (fresh[:7], fresh[7:]):
        progress.see([], part, xmin=1, is_late_cut=False)
    assert progress.high == max([low, *fresh])
    missing = {number for start, end in progress.missing for number in range(start, end)}
    assert missing == set(range(low + 1, progress.high)) - set(fresh)


def test_a_gap_waits_for_the_transactions_that_could_fill_it() -> None:
    progress = Watermark(0)
    progress.see([], [1, 4], xmin=30, is_late_cut=False)
    progress.see([], [], xmin=30, is_late_cut=False)
    assert progress.missing == [(2, 4)], "nobody knows yet who may have taken them"
    progress.bound(20)
    progress.see([], [], xmin=19, is_late_cut=False)
    assert progress.missing == [(2, 4)]
    progress.see([3], [], xmin=20, is_late_cut=False)
    assert progress.missing == []
    assert progress.done.beyond == [(2, 3)]


def test_a_gap_of_an_earlier_leader_is_looked_for_with_fresh_eyes() -> None:
    progress = Watermark(5, [(8, 10)])
    assert progress.missing == [(6, 8)]
    assert progress.high == 9
    progress.see([], [], xmin=100, is_late_cut=False)
    assert progress.missing == [(6, 8)]
    progress.bound(100)
    progress.see([6], [], xmin=100, is_late_cut=False)
    assert progress.missing == []
    progress.done.add(6)
    assert progress.done.low == 9


def test_what_was_cut_off_is_not_given_up() -> None:
    progress = Watermark(0)
    progress.see([], [10], xmin=1, is_late_cut=False)
    progress.bound(5)
    progress.see([1, 3], [], xmin=9, is_late_cut=True)
    assert (4, 10) in progress.missing
    assert progress.done.beyond == [(2, 3)]


def test_where_late_ones_are_cut_off_what_lies_beyond_is_read_again() -> None:
    progress = Watermark(0)
    assert progress.take([1, 5, 9], xmin=1, limit=3) == 3
    assert progress.take([2, 3, 10, 11], xmin=1, limit=2) == 2
    assert (progress.high, progress.missing) == (9, [(4, 5), (6, 9)])
    assert progress.take([4, 10, 11], xmin=1, limit=2) == 3
    assert (progress.high, progress.missing) == (11, [(6, 9)])
    assert progress.take([], xmin=1, limit=2) == 0


@given(st.data())
def test_every_number_ends_done_or_found(data: st.DataObject) -> None:
    """Numbers commit late, or never; whatever the order, none that commits is missed."""
    total = data.draw(st.integers(1, 25))
    fate = {number: data.draw(st.sampled_from(["now", "late", "never"])) for number in range(1, total + 1)}
    fate[total] = "now"
    progress = Watermark(0)
    first = [number for number in fate if fate[number] == "now"]
    late = [number for number in fate if fate[number] == "late"]
    cut = data.draw(st.integers(0, len(late)))

    def is_looked_for(numbers: list[int]) -> bool:
        missing = {number for start, end in progress.missing for number in range(start, end)}
        return missing.issuperset(numbers)

    progress.see([], first, xmin=1, is_late_cut=False)
    assert is_looked_for(late)
    if data.draw(st.booleans()):  # a snapshot before anybody knows who may have taken them
        progress.see([], [], xmin=60, is_late_cut=False)
        assert is_looked_for(late)
    progress.bound(50)
    progress.see(late[:cut], [], xmin=10, is_late_cut=False)
    assert is_looked_for(late[cut:])
    progress.see(late[cut:], [], xmin=60, is_late_cut=False)
    assert progress.missing == []
    for number in first + late:
        assert number not in progress.done, "nothing that commits is given up"
        progress.done.add(number)
    assert progress.done.low == total
