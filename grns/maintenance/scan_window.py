"""How far back a scan over time has to look.

An index that is always read from its old end gets slow: what was taken from there stays
as dead entries while some old snapshot is open. So a scan looks only at the recent past,
and everywhere at its start and now and then.
"""

from __future__ import annotations

import time

_RECENT_SECONDS = 15.0
_EVERYWHERE_EVERY_SECONDS = 30.0


class ScanWindow:
    """Remembers when everything was looked at last."""

    def __init__(self) -> None:
        self._everywhere_at: float | None = None
        self._is_everywhere = True

    def seconds(self) -> float | None:
        """Return how far back to look now; None is everywhere."""
        now = time.monotonic()
        self._is_everywhere = (
            self._everywhere_at is None or now - self._everywhere_at > _EVERYWHERE_EVERY_SECONDS
        )
        return None if self._is_everywhere else _RECENT_SECONDS

    def note_end(self) -> None:
        """Note that the scan came to its end."""
        if self._is_everywhere:
            self._everywhere_at = time.monotonic()

    def forget(self) -> None:
        """Look everywhere next: nothing was looked at for a while."""
        self._everywhere_at = None
