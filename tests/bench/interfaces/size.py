"""How large the table is: all else follows from its rows."""

from __future__ import annotations

from dataclasses import dataclass

GOALS_ROWS = 1_000_000
LEAST_ROWS, MOST_ROWS = 20_000, 5_000_000
GOALS_RATE = 2_000


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """With 1,000,000 rows these are what the goals speak of; with 20,000 all is tried in a few minutes."""

    rows: int = GOALS_ROWS
    rounds: int = 5
    samples: int = 100

    @property
    def dead(self) -> int:
        """Tasks of the first workspace that are dead: what is redriven."""
        return self.rows // 10

    @property
    def queued(self) -> int:
        """Tasks that wait to be claimed."""
        return self.rows // 25

    @property
    def retrying(self) -> int:
        """Tasks that wait for their next attempt."""
        return self.rows // 50

    @property
    def running(self) -> int:
        """Tasks that run."""
        return self.rows // 250

    @property
    def waiting(self) -> int:
        """Tasks that are due later."""
        return self.rows // 500

    @property
    def failed(self) -> int:
        """Tasks that have failed for good at their first attempt."""
        return self.rows // 500

    @property
    def cancelled(self) -> int:
        """Tasks that somebody has cancelled."""
        return self.rows // 100

    @property
    def failures(self) -> int:
        """Failures that a person would tell apart: a few have thousands of tasks, most of them some."""
        return max(self.rows // 3000, 40)

    @property
    def letters(self) -> int:
        """Messages that belong to no task."""
        return self.rows // 500

    @property
    def deliveries(self) -> int:
        """Events that a webhook was told of."""
        return self.rows // 20

    @property
    def depth(self) -> int:
        """How many rows of a list lie before the place where its deep pages begin, where it is that long."""
        return self.rows // 20

    @property
    def passing(self) -> int:
        """Tasks that go the whole way in a round, with and without an API beside them."""
        return max(3 * self.rows // 50, 5_000)

    @property
    def rate(self) -> int:
        """Tasks a second that are redriven: for fifty seconds, or ten where there are few."""
        return min(max(self.dead // 50, self.dead // 10 if self.rows < GOALS_ROWS // 10 else 0), GOALS_RATE)
