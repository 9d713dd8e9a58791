"""How much is measured: all of it follows from the tasks of one round."""

from __future__ import annotations

from dataclasses import dataclass

GOALS_ROWS = 20_000
LEAST_ROWS, MOST_ROWS = 200, 200_000
_GOALS_SECONDS = 30.0


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """With 20,000 rows these are what the goals speak of; with 200 everything is tried in a minute or two."""

    rows: int = GOALS_ROWS
    rounds: int = 3

    @property
    def warm(self) -> int:
        """Tasks that pass before anything is measured."""
        return max(self.rows // 20, 50)

    @property
    def singles(self) -> int:
        """Tasks that are submitted one by one."""
        return max(self.rows // 20, 50)

    @property
    def samples(self) -> int:
        """Tasks whose latency is taken."""
        return max(self.rows // 20, 50)

    @property
    def children(self) -> int:
        """Tasks that one task submits and waits for."""
        return min(10_000, self.rows // 2)

    @property
    def messages(self) -> int:
        """Rows of the log that a relay begins with."""
        return 10 * self.rows

    @property
    def small_backlog(self) -> int:
        """Tasks that are queued where few are."""
        return self.rows // 2

    @property
    def big_backlog(self) -> int:
        """Tasks that are queued where many are."""
        return 50 * self.rows

    @property
    def slice(self) -> int:
        """Tasks that are run of either backlog at a time: even the small one is not empty then."""
        return 4 * self.small_backlog // 5

    @property
    def snapshot_tasks(self) -> int:
        """Tasks that are run while an old snapshot is held open."""
        return 10 * self.rows

    @property
    def long_tasks(self) -> int:
        """Tasks that run all at once."""
        return self.rows // 4

    @property
    def mail(self) -> int:
        """Messages between agents that there are."""
        return 50 * self.rows

    @property
    def window_seconds(self) -> float:
        """How long processes are watched that have little to do."""
        return max(_GOALS_SECONDS * self.rows / GOALS_ROWS, 3.0)
