"""Leader election: one row of `grns.leases` for each service of which one process works at a time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol


class Statements(Protocol):
    """A database or one connection to it."""

    async def run(self, name: str, *arguments: Any) -> Sequence[Any]:
        """Run one statement by its name."""


@dataclass(slots=True)
class LeaderLease:
    """The lease of one leader, by the name of its service.

    Each acquisition raises the epoch. Every statement that only the leader may run is guarded by the epoch
    and renews the lease, in the same row: an earlier leader, however late its statement comes, changes
    nothing. `expires_at` is counted on the local monotonic clock from before the statement was sent, so
    it is never later than the row's.
    """

    name: str
    owner: str
    seconds: float
    epoch: int = 0
    expires_at: float = 0.0

    async def acquire(self, database: Statements) -> bool:
        """Become the leader under a new epoch; False while another owner leads."""
        sent_at = time.monotonic()
        rows = await database.run("acquire_lease", self.name, self.owner, self.seconds)
        if not rows:
            return False
        self.epoch = rows[0]["epoch"]
        self.note_renewal(sent_at)
        return True

    def note_renewal(self, sent_at: float) -> None:
        """Note that a statement sent at `sent_at` has renewed the lease."""
        self.expires_at = sent_at + self.seconds

    @property
    def is_due(self) -> bool:
        """True once a third of the lease has passed."""
        return time.monotonic() > self.expires_at - self.seconds * 2 / 3

    async def release(self, database: Statements) -> None:
        """Give the lease up, so that a standby need not wait for its end."""
        self.expires_at = 0.0
        await database.run("release_lease", self.name, self.epoch)
