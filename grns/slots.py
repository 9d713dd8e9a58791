"""Slots: how many tasks a worker runs at a time."""

from __future__ import annotations

from collections.abc import Callable


class Slots:
    """Counts free slots; all of `on_free` are called whenever there may be another number of them."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.free = size  # below zero while more is taken than there is, or while all are held back
        self.is_held = False
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
        self._tell()

    @property
    def taken(self) -> int:
        """How many are in use."""
        return (0 if self.is_held else self.size) - self.free

    def hold(self) -> None:
        """Let nobody have one, until `resume`."""
        if not self.is_held:
            self.is_held = True
            self.free -= self.size
            self._tell()

    def resume(self) -> None:
        """Let them be taken again."""
        if self.is_held:
            self.is_held = False
            self.free += self.size
            self._tell()

    def _tell(self) -> None:
        for tell in self.on_free:
            tell()
