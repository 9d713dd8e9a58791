"""What one stream has not taken: tried again a few at a time, with growing pauses while it takes nothing."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from grns.outbox.message import OutboxMessage

_FIRST_PAUSE_SECONDS = 0.25
_LONGEST_PAUSE_SECONDS = 2.0  # a cluster that elects a leader takes as long
# How many are tried again at once: so many while the stream takes nothing, more with each that it takes.
_FEWEST_TRIALS, _MOST_TRIALS = 20, 500


@dataclass(order=True, slots=True)
class _Later:
    at: float
    seq: int
    message: OutboxMessage = field(compare=False)


class RetryQueue:
    """The parcels that one stream is asked to take again.

    A stream that has only failed for a while is blocked: trials go to it, and nothing else. A parcel
    that fails by itself, again and again, blocks nothing: only first tries count.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._later: list[_Later] = []
        self._failures = 0  # at their first try, since the stream has taken anything
        self._trials = 0  # under way
        self._most_trials = _FEWEST_TRIALS
        self._pause = 0.0
        self._next_at = 0.0

    def __bool__(self) -> bool:
        return bool(self._later)

    @property
    def is_blocked(self) -> bool:
        """Say whether nothing is to be sent to the stream but trials."""
        return self._failures >= _FEWEST_TRIALS

    def keep(self, message: OutboxMessage, seconds: float = 0.0) -> None:
        """Keep a parcel back for so long, for reasons of its own."""
        self._end_trial(message)
        heapq.heappush(self._later, _Later(self._clock() + seconds, message.entry.seq, message))

    def keep_failed(self, message: OutboxMessage) -> None:
        """Keep a parcel back that the stream has not taken: it and the stream pause for longer each time."""
        now = self._clock()
        if message.tries == 0:
            self._failures += 1
        if message.is_trial:
            self._most_trials = _FEWEST_TRIALS
            if now >= self._next_at:  # else another one of the same round has failed, too
                self._pause = min(max(_FIRST_PAUSE_SECONDS, 2 * self._pause), _LONGEST_PAUSE_SECONDS)
                self._next_at = now + self._pause
        pause = min(_FIRST_PAUSE_SECONDS * 2 ** min(message.tries, 10), _LONGEST_PAUSE_SECONDS)
        message.tries += 1
        self.keep(message, pause)

    def note_taken(self, message: OutboxMessage) -> None:
        """Note that the stream has taken a parcel: it may take others now."""
        self._end_trial(message)
        if self.is_blocked:
            self._later = [_Later(0.0, later.seq, later.message) for later in self._later]
            heapq.heapify(self._later)
        self._failures, self._pause, self._next_at = 0, 0.0, 0.0
        self._most_trials = min(self._most_trials + 1, _MOST_TRIALS)

    def due(self) -> OutboxMessage | None:
        """Return what is to be tried now, None where nothing is."""
        if not self._later or self._trials >= self._most_trials:
            return None
        now = self._clock()
        if now < self._next_at or now < self._later[0].at:
            return None
        message = heapq.heappop(self._later).message
        message.is_trial = True
        self._trials += 1
        return message

    def _end_trial(self, message: OutboxMessage) -> None:
        if message.is_trial:
            message.is_trial = False
            self._trials -= 1
