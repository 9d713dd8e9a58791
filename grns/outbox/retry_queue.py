"""Messages that one stream refused: retried a few at a time, with growing pauses while it accepts none."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from grns.outbox.message import OutboxMessage

_FIRST_PAUSE_SECONDS = 0.25
_LONGEST_PAUSE_SECONDS = 2.0  # a cluster that elects a leader takes as long
# Concurrent retries: the minimum while the stream accepts nothing, more with each accepted message.
_FEWEST_TRIALS, _MOST_TRIALS = 20, 500


@dataclass(order=True, slots=True)
class _Later:
    at: float
    seq: int
    message: OutboxMessage = field(compare=False)


class RetryQueue:
    """The messages to send to one stream again.

    After enough failures in a row the stream is blocked: only trials are sent to it. A single message that
    fails again and again blocks nothing: only first tries count.
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
        """Return whether only trials may be sent to the stream."""
        return self._failures >= _FEWEST_TRIALS

    def keep(self, message: OutboxMessage, seconds: float = 0.0) -> None:
        """Hold a message for some seconds because of an error of its own."""
        self._end_trial(message)
        heapq.heappush(self._later, _Later(self._clock() + seconds, message.entry.seq, message))

    def keep_failed(self, message: OutboxMessage) -> None:
        """Hold a message that the stream refused: message and stream pause longer each time."""
        now = self._clock()
        if message.tries == 0:
            self._failures += 1
        if message.is_trial:
            self._most_trials = _FEWEST_TRIALS
            if now >= self._next_at:  # otherwise another trial of this round has failed, too
                self._pause = min(max(_FIRST_PAUSE_SECONDS, 2 * self._pause), _LONGEST_PAUSE_SECONDS)
                self._next_at = now + self._pause
        pause = min(_FIRST_PAUSE_SECONDS * 2 ** min(message.tries, 10), _LONGEST_PAUSE_SECONDS)
        message.tries += 1
        self.keep(message, pause)

    def note_taken(self, message: OutboxMessage) -> None:
        """Note that the stream accepted a message: it may accept others now."""
        self._end_trial(message)
        if self.is_blocked:
            self._later = [_Later(0.0, later.seq, later.message) for later in self._later]
            heapq.heapify(self._later)
        self._failures, self._pause, self._next_at = 0, 0.0, 0.0
        self._most_trials = min(self._most_trials + 1, _MOST_TRIALS)

    def due(self) -> OutboxMessage | None:
        """Return the message to try now; None if none is due."""
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
