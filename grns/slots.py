"""Slots: how many tasks a worker runs at a time."""

from __future__ import annotations

from collections.abc import Callable


class Slots:
    """Counts free slots; all of `on_free` are called whenever there may be another number of them."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.free = size  # below zero while more is taken than there is, or while all are held back
        self.is_held = False
        self._reasons: set[str] = set()  # to hold all back
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

    def hold(self, why: str) -> None:
        """Let nobody have one, until `resume` for the same reason."""
        self._reasons.add(why)
        self._weigh()

    def resume(self, why: str) -> None:
        """Let them be taken again, unless there is another reason to hold them."""
        self._reasons.discard(why)
        self._weigh()

    def _weigh(self) -> None:
        if self.is_held != bool(self._reasons):
            self.is_held = not self.is_held
            self.free += -self.size if self.is_held else self.size
            self._tell()

    def _tell(self) -> None:
        for tell in self.on_free:
            tell()
