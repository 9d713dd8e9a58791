"""A bound around what a task does: a cheap `asyncio.timeout` that others may cut short."""

from __future__ import annotations

import asyncio
from types import TracebackType


class CancelScope:
    """Ends what the current asyncio task does in its block with `TimeoutError`, in time or when it is cut.

    One is made for each attempt. As with `asyncio.timeout`, a task that other code
    cancelled meanwhile stays cancelled.
    """

    __slots__ = ("_cancelling", "_has_ended", "_has_expired", "_task", "_timer")

    def __init__(self, seconds: float | None) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a scope bounds a task, and there is none here")
        self._task = task
        self._cancelling = task.cancelling()
        self._has_expired = self._has_ended = False
        self._timer: asyncio.Handle | None = None
        if seconds is not None:
            self._timer = task.get_loop().call_later(seconds, self._expire)

    def cancel(self) -> None:
        """End it in the next turn of the loop; does nothing where it has ended or its time was up already."""
        if self._has_expired or self._has_ended:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._task.get_loop().call_soon(self._expire)

    def __enter__(self) -> CancelScope:
        """Begin."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """End; the cancellation that the scope asked for becomes a `TimeoutError`."""
        self._has_ended = True
        if self._timer is not None:
            self._timer.cancel()
        if self._has_expired and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def _expire(self) -> None:
        self._has_expired = True
        self._task.cancel()
