"""Slots: how many tasks a worker runs at a time."""

from __future__ import annotations

from collections.abc import Callable


class Slots:
    """Counts free slots; all of `on_free` are called whenever one is given back."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.free = size
        self.on_free: list[Callable[[], None]] = []

    def try_take(self) -> bool:
        """Take a slot if one is free."""
        if self.free <= 0:
            return False
        self.free -= 1
        return True

    def take(self) -> None:
        """Take a slot even if none is free: for the few tasks that must not wait for one for ever."""
        self.free -= 1

    def give(self) -> None:
        """Give a slot back."""
        self.free += 1
        for tell in self.on_free:
            tell()
