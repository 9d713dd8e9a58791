"""What the broker has lost, on its way again: how far it was read, and how far the broker has it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from grns.nats.interface import Receipt
from grns.outbox.log import LogEntry, LostRange


@dataclass(slots=True)
class _Page:
    after: int
    left: int


class LossReplay:
    """A stretch of the log that is sent again, page by page, to those streams that have lost it.

    `since` is where it begins: what is lost once more meanwhile is lost from there on, for nobody need
    have heard it in between.
    """

    def __init__(self, lost: LostRange, up_to: int, patterns: frozenset[str]) -> None:
        self.since = lost.since
        self.after = lost.settled
        self.up_to = up_to
        self.patterns = patterns
        self.events = 0
        self._pages: deque[_Page] = deque()

    @property
    def lost(self) -> LostRange:
        """Where it begins, and up to where the broker has it again: for whoever goes on with it."""
        return LostRange(self.since, self._pages[0].after if self._pages else self.after)

    @property
    def is_read(self) -> bool:
        """Say whether all of it has been read."""
        return self.after >= self.up_to

    def take(self, after: int, entries: Sequence[LogEntry]) -> Callable[[Receipt], None]:
        """Note a page that ends there; returns what is to hear of each of its receipts."""
        page = _Page(self.after, len(entries))
        if entries:
            self._pages.append(page)
        self.after = after
        self.events += len(entries)
        return partial(self._note, page)

    def extend(self, lost: LostRange, up_to: int, pattern: str) -> None:
        """Have more of it sent again: what is under way may be lost with the rest."""
        self.after = min(self.lost.settled, lost.settled)
        self.since = min(self.since, lost.since)
        self.up_to = max(self.up_to, up_to)
        self.patterns |= {pattern}
        self._pages.clear()

    def _note(self, page: _Page, _receipt: Receipt) -> None:
        page.left -= 1
        while self._pages and not self._pages[0].left:
            self._pages.popleft()
