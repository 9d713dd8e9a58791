"""How many rows a page has: fewer after a refusal, until the bad row is alone."""

from __future__ import annotations


class AdaptiveBatchSize:
    """The number of `rows` that the next page may have."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self.rows = longest

    @property
    def is_short(self) -> bool:
        """True where a page was refused not long ago."""
        return self.rows < self._longest

    def shorten(self) -> bool:
        """Halve it after a refusal; False where the page was a single row already."""
        if self.rows == 1:
            return False
        self.rows //= 2
        return True

    def lengthen(self) -> None:
        """Double it, up to its first length, after a page that went well."""
        self.rows = min(2 * self.rows, self._longest)

    def bound(self, longest: int) -> None:
        """Let no page be longer."""
        self._longest = longest
        self.rows = min(self.rows, longest)
