"""What a reader of a task's output may see: pure, without clock and broker."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from grns.model.output import MARKS, SUSPENDED, Chunk
from grns.model.task import TERMINAL, TaskStatus

MOST_CHUNKS, MOST_BYTES = 4096, 4 * 1024 * 1024
_AT_ONCE = 100
Place = tuple[int, int]  # attempt and number
_START: Place = (0, 0)


@dataclass(frozen=True, slots=True)
class OutputEvent:
    """What happens to a task that is watched.

    Attributes:
        event: `state`: the status or the attempt has changed; `chunk`: the handler has streamed something;
            `reset`: forget all chunks, because a later attempt begins: what still counts comes again; `gap`:
            chunks are lost; `end`: the task has ended, and no more comes.
        attempt: number of the attempt.
        number: number of a chunk within its attempt, from 1.
        kind: of a chunk: `text`, `json`, or what the handler calls it.
        data: of a chunk: text, or a JSON value.
        status: of `state` and `end`: status of the task; `deleted` if it was deleted meanwhile.
        lost: how many chunks are missing here; None if that is unknown, as at the end of a killed worker's.
    """

    event: str
    attempt: int
    number: int | None = None
    kind: str | None = None
    data: Any = None
    status: str | None = None
    lost: int | None = None

    @property
    def place(self) -> str | None:
        """Where to go on after a lost connection, as `attempt.number`."""
        return None if self.number is None else f"{self.attempt}.{self.number}"


class OutputView:
    """The chunks of a task that still count, and its state."""

    def __init__(self) -> None:
        self.status: TaskStatus | None = None
        """None until it is known."""
        self.attempt = 0
        self.has_ended = False
        """Whether nothing more comes; with a status of None, the task does not exist."""
        self._places: list[Place] = []
        self._chunks: list[Chunk] = []
        self._sizes: list[int] = []
        self._size = 0
        self._last = _START

    @property
    def is_complete(self) -> bool:
        """Return whether the last attempt that has streamed has said that it streams no more."""
        return not self._chunks or self._chunks[-1].kind in MARKS

    def follows(self, chunk: Chunk) -> bool:
        """Return whether nothing is missing before this chunk."""
        attempt, number = self._last
        if attempt == chunk.attempt:
            return number + 1 == chunk.number
        return chunk.number == 1 and self.is_complete

    def add(self, chunk: Chunk, size: int, *, is_live: bool) -> bool:
        """Take a chunk of some bytes in; return whether it is news. A live one of an old attempt is none."""
        place = (chunk.attempt, chunk.number)
        is_closed = self._last[0] == chunk.attempt and bool(self._chunks) and self.is_complete
        if place <= self._last or is_closed or (is_live and chunk.attempt < self.attempt):
            return False
        if chunk.attempt > self._last[0]:
            self._forget_failed()
        self._last = place
        self._places.append(place)
        self._chunks.append(chunk)
        self._sizes.append(size)
        self._size += size
        excess = 0
        while len(self._chunks) - excess > MOST_CHUNKS or self._size > MOST_BYTES:
            self._size -= self._sizes[excess]
            excess += 1
        del self._chunks[:excess], self._places[:excess], self._sizes[:excess]
        self.attempt = max(self.attempt, chunk.attempt)
        return True

    def rebuild(self, stored: Iterable[tuple[Chunk, int]]) -> None:
        """Begin again with what the broker has stored, unless that is less than what is known."""
        fresh = OutputView()
        for chunk, size in stored:
            fresh.add(chunk, size, is_live=False)
        if fresh._last >= self._last:
            self._places, self._chunks = fresh._places, fresh._chunks
            self._sizes, self._size, self._last = fresh._sizes, fresh._size, fresh._last
        self.note(self.status, max(self.attempt, fresh.attempt))

    def note(self, status: TaskStatus | None, attempt: int) -> bool:
        """Note what Postgres says, None if the task is gone; return whether it is news."""
        is_news = (status, attempt) != (self.status, self.attempt)
        self.status = status
        self.attempt = max(self.attempt, attempt)
        if self._last[0] < attempt:
            self._forget_failed()
        return is_news

    @property
    def is_terminal(self) -> bool:
        """Return whether the task has ended."""
        return self.status in TERMINAL

    def counts(self, place: Place) -> bool:
        """Return whether what a reader has seen up to a place still counts."""
        return place == _START or place[0] == self.attempt or any(one[0] == place[0] for one in self._places)

    def behind(self, place: Place) -> list[Chunk]:
        """Return the next chunks behind a place."""
        first = bisect_right(self._places, place)
        return self._chunks[first : first + _AT_ONCE]

    def _forget_failed(self) -> None:
        """Drop what the last attempt has streamed, unless it was suspended: the next one begins there."""
        kept = len(self._chunks)
        while kept and self._chunks[kept - 1].kind != SUSPENDED:
            kept -= 1
        self._size -= sum(self._sizes[kept:])
        del self._chunks[kept:], self._places[kept:], self._sizes[kept:]


class OutputReader:
    """How far one reader of a task has come: a place, so that a slow one costs little memory."""

    def __init__(self, seen: Place = _START) -> None:
        self._seen = seen
        self._told: tuple[int, TaskStatus | None] | None = None

    def take(self, view: OutputView, *, is_loading: bool) -> list[OutputEvent]:
        """Return what is new, a part at a time; only the state while older chunks are still read.

        The last one is `end`.
        """
        found: list[OutputEvent] = []
        if view.status is None and not view.has_ended:
            return found
        state = (view.attempt, view.status)
        if state != self._told and (self._told is None or not view.has_ended) and view.status is not None:
            self._told = state
            found.append(OutputEvent("state", view.attempt, status=view.status))
        if is_loading and not view.has_ended:
            return found
        if not view.counts(self._seen):
            self._seen = _START
            found.append(OutputEvent("reset", view.attempt))
        for chunk in view.behind(self._seen):
            expected = self._seen[1] + 1 if chunk.attempt == self._seen[0] else 1
            if chunk.number > expected:
                found.append(OutputEvent("gap", chunk.attempt, lost=chunk.number - expected))
            self._seen = (chunk.attempt, chunk.number)
            if chunk.kind not in MARKS:
                found.append(OutputEvent("chunk", *self._seen, chunk.kind, chunk.data))
        if view.has_ended and not view.behind(self._seen):
            if not view.is_complete:
                found.append(OutputEvent("gap", view.attempt))
            found.append(OutputEvent("end", view.attempt, status=view.status or "deleted"))
        return found


def place_of(text: str) -> Place | None:
    """Return the place that `attempt.number` names; None if it names none."""
    attempt, _, number = text.partition(".")
    if not (attempt.isascii() and attempt.isdigit() and number.isascii() and number.isdigit()):
        return None
    return (int(attempt), int(number)) if len(text) <= 40 else None
