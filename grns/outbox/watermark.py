"""How far a log of numbers has got: what is done, what is missing, and when to stop waiting for it.

Numbers become visible out of order, and some never do (their transaction was rolled back).
A missing number is given up only once a snapshot in which every transaction that could
have taken it has ended still does not show it. Which these are, no snapshot says: its
upper bound is that of the transactions that have ended, and others may have begun beyond
it. The id of a transaction of our own says it, one that began once the number was missing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

Span = tuple[int, int]  # from the first up to, but not including, the second


class NumberRanges:
    """A set of numbers from 0 on, kept as spans: it grows with the holes, not with the numbers."""

    def __init__(self, low: int, beyond: Sequence[Span] = ()) -> None:
        self._starts = [0]
        self._ends = [low + 1]
        for start, end in sorted(beyond):
            self.add_span(start, end)

    @property
    def low(self) -> int:
        """All numbers up to here are in."""
        return self._ends[0] - 1

    @property
    def high(self) -> int:
        """The highest number that is in."""
        return self._ends[-1] - 1

    @property
    def beyond(self) -> list[Span]:
        """What is in beyond `low`, as spans."""
        return list(zip(self._starts[1:], self._ends[1:], strict=True))

    @property
    def holes(self) -> list[Span]:
        """What is not in, below `high`, as spans."""
        return list(zip(self._ends[:-1], self._starts[1:], strict=True))

    def __contains__(self, number: int) -> bool:
        return number < self._ends[bisect_right(self._starts, number) - 1]

    def add(self, number: int) -> None:
        """Put one number in."""
        starts, ends = self._starts, self._ends
        place = bisect_right(starts, number)
        if ends[place - 1] == number and (place == len(starts) or starts[place] > number + 1):
            ends[place - 1] = number + 1  # the usual one: it follows what is in, and joins nothing
        else:
            self.add_span(number, number + 1)

    def add_span(self, start: int, end: int) -> None:
        """Put a stretch of numbers in."""
        starts, ends = self._starts, self._ends
        first = bisect_right(starts, start) - 1
        if ends[first] < start:
            first += 1
            starts.insert(first, start)
            ends.insert(first, end)
        else:
            ends[first] = max(ends[first], end)
        last = first + 1
        while last < len(starts) and starts[last] <= ends[first]:
            ends[first] = max(ends[first], ends[last])
            last += 1
        if last > first + 1:
            del starts[first + 1 : last]
            del ends[first + 1 : last]


@dataclass(frozen=True, slots=True)
class Gap:
    """Numbers that were not visible; transactions that may have taken them have ids below `bound`."""

    start: int
    end: int
    bound: int | None = None


class Watermark:
    """What of the log is done, and what is missing."""

    def __init__(self, low: int, beyond: Sequence[Span] = ()) -> None:
        self.done = NumberRanges(low, beyond)
        self.high = self.done.high
        # What an earlier leader left open is looked for again, whatever it knew of it.
        self._gaps = [Gap(start, end) for start, end in self.done.holes]

    @property
    def missing(self) -> list[Span]:
        """The numbers to look for."""
        return [(gap.start, gap.end) for gap in self._gaps]

    @property
    def missing_count(self) -> int:
        """How many numbers are looked for."""
        return sum(gap.end - gap.start for gap in self._gaps)

    def bound(self, xid: int) -> None:
        """Take in the id of a transaction that began after all that is missing had been seen to be."""
        self._gaps = [gap if gap.bound is not None else Gap(gap.start, gap.end, xid) for gap in self._gaps]

    def take(self, numbers: Sequence[int], *, xmin: int, limit: int) -> int:
        """Take in one reading: missing numbers that turned up, then those beyond `high`, both sorted.

        At most `limit` of each were read. Returns how many are taken: where late ones may have been cut off,
        what lies beyond `high` is read again, for what lies between is not known yet.
        """
        first_fresh = bisect_right(numbers, self.high)
        is_late_cut = first_fresh >= limit
        taken = first_fresh if is_late_cut else len(numbers)
        self.see(numbers[:first_fresh], numbers[first_fresh:taken], xmin=xmin, is_late_cut=is_late_cut)
        return taken

    def see(self, late: Sequence[int], fresh: Sequence[int], *, xmin: int, is_late_cut: bool) -> None:
        """Take in what one snapshot shows.

        `late` are missing numbers that turned up, `fresh` those beyond `high`, both sorted.
        `is_late_cut` says that only the first of the late ones were read.
        """
        known_up_to = late[-1] if is_late_cut and late else None
        self._gaps = self._without(late, xmin, known_up_to)
        if fresh and fresh[-1] - self.high == len(fresh):
            self.high = fresh[-1]  # the usual stretch: without a gap
            return
        for number in fresh:
            if number > self.high + 1:
                self._gaps.append(Gap(self.high + 1, number))
            self.high = number

    def _without(self, late: Sequence[int], xmin: int, known_up_to: int | None) -> list[Gap]:
        """Return the gaps that remain: without what turned up, and without what can never turn up."""
        remaining: list[Gap] = []
        place = 0
        for gap in self._gaps:
            start = gap.start
            pieces: list[Span] = []
            while place < len(late) and late[place] < gap.end:
                if late[place] > start:
                    pieces.append((start, late[place]))
                start = late[place] + 1
                place += 1
            if start < gap.end:
                pieces.append((start, gap.end))
            for piece in pieces:
                is_known = known_up_to is None or piece[1] <= known_up_to
                if is_known and gap.bound is not None and xmin >= gap.bound:
                    self.done.add_span(*piece)
                else:
                    remaining.append(Gap(*piece, gap.bound))
        return remaining
