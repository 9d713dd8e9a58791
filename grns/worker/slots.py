"""Slots: how many handlers a worker runs at a time."""

from __future__ import annotations

from collections.abc import Callable


class Slots:
    """Counts free slots; all of `on_free` are called whenever there may be another number of them.

    A task takes a slot from before its claim until its outcome is written. While the outcome is written, its
    handler has ended and another task may use the slot (`lend`), so that as many handlers run as there are
    slots and outcomes are written together. At most `size` slots are lent at a time: handlers that end
    faster than Postgres writes wait. `ahead` is how many tasks may be claimed besides, to wait for a handler
    to end: `running` says how many handlers run.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.taken = 0
        self.running = 0
        self.ahead = 0
        self.is_held = False
        self._reasons: set[str] = set()  # to hold all back
        self.on_free: list[Callable[[], None]] = []
        self._lent = 0

    @property
    def free(self) -> int:
        """How many can be taken; below zero while more is taken than there is, or while all are held back."""
        return (0 if self.is_held else self.size) + min(self._lent, self.size) - self.taken

    @property
    def free_ahead(self) -> int:
        """How many can be taken for tasks that may wait for a handler to end."""
        return self.free if self.is_held else self.free + self.ahead

    def try_take(self) -> bool:
        """Take a slot if one is free."""
        if self.free <= 0:
            return False
        self.taken += 1
        return True

    def take(self, count: int = 1) -> None:
        """Take slots even if none is free: for the few tasks that must not wait for one for ever."""
        self.taken += count

    def give(self) -> None:
        """Give a slot back."""
        self.taken -= 1
        self._tell()

    def begin(self) -> None:
        """Count a handler that begins in a taken slot."""
        self.running += 1

    def end(self) -> None:
        """Count a handler that has ended, and give its slot back."""
        self.running -= 1
        self.taken -= 1
        self._tell()

    def lend(self) -> None:
        """Let another task use a taken slot, because its handler has ended, until it is taken back."""
        self._lent += 1
        self.running -= 1
        self._tell()

    def take_back(self) -> None:
        """Take a slot back that was lent."""
        self._lent -= 1
        self.running += 1

    def hold(self, why: str) -> None:
        """Give out no slot until `resume` for the same reason."""
        self._reasons.add(why)
        self._weigh()

    def resume(self, why: str) -> None:
        """Let them be taken again, unless there is another reason to hold them."""
        self._reasons.discard(why)
        self._weigh()

    def _weigh(self) -> None:
        if self.is_held != bool(self._reasons):
            self.is_held = not self.is_held
            self._tell()

    def _tell(self) -> None:
        for tell in self.on_free:
            tell()
