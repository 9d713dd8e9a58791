"""What keeps an agent's tasks its own: threads that renew their leases, whatever the agent's loop does.

Like a worker's heartbeat process they stop only while C code holds the interpreter. Without an answer they
try again until the lease's own deadline, counted from before the last request that was answered. There are a
few of them, so that one request without an answer does not keep other leases waiting.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from grns.errors import LeaseLostError, NotFoundError

_LONGEST_REQUEST_SECONDS = 10.0
_IDLE_SECONDS = 3600.0
_MOST_THREADS = 4
# Of the reasons to end the one for which a task is kept on until it has.
CANCELLED = "cancelled"

# Asks once: token and patience in seconds; returns the answer.
Renew = Callable[[str, float], Any]


class Kept(Protocol):
    """A task whose lease is renewed."""

    token: str
    lease_seconds: float
    expires_at: float  # by the local monotonic clock
    is_overdue: bool

    def end(self, reason: str) -> None:
        """Hear, from another thread, that it is over: `lost`, `deadline` or `cancelled`."""

    def hear(self, order: str) -> None:
        """Hear, from another thread, what the worker's agent is told: `drain` or `stop`."""


class LeaseRenewer:
    """Renews each task every third of its lease, until it is forgotten or over."""

    def __init__(self, renew: Renew, *, on_end: Callable[[], None]) -> None:
        self._renew = renew
        self._on_end = on_end
        self._due: dict[str, tuple[float, Kept]] = {}
        self._changed = threading.Condition()
        self._is_stopping = False
        self._threads: list[threading.Thread] = []
        self._running = 0

    def keep(self, task: Kept) -> None:
        """Renew a task's lease from now on: at once, if the answer to the claim took a third of it."""
        with self._changed:
            self._due[task.token] = (task.expires_at - 2 * task.lease_seconds / 3, task)
            if len(self._threads) < min(len(self._due), _MOST_THREADS):
                thread = threading.Thread(target=self._run, name="grns-agent-heartbeat", daemon=True)
                self._threads.append(thread)
                self._running += 1
                thread.start()
            self._changed.notify_all()

    def forget(self, task: Kept) -> None:
        """Renew it no more."""
        with self._changed:
            self._due.pop(task.token, None)

    def stop(self, seconds: float) -> None:
        """End the threads and wait for so long at most; `on_end` is called when all have ended."""
        with self._changed:
            self._is_stopping = True
            self._due.clear()
            self._changed.notify_all()
        if not self._threads:
            self._on_end()
        until = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    def _run(self) -> None:
        try:
            self._keep_all()
        finally:
            with self._changed:
                self._running -= 1
                is_last = self._running == 0
            if is_last and self._is_stopping:
                self._on_end()

    def _keep_all(self) -> None:
        while (task := self._next()) is not None:
            reason = self._ask(task)
            with self._changed:
                is_kept = task.token in self._due
                if reason is not None and reason != CANCELLED:
                    self._due.pop(task.token, None)
            if reason is not None and is_kept:
                task.end(reason)

    def _next(self) -> Kept | None:
        """Wait for the task that is due first; None at the end."""
        with self._changed:
            while not self._is_stopping:
                due_at, task = min(
                    self._due.values(),
                    key=lambda one: one[0],
                    default=(time.monotonic() + _IDLE_SECONDS, None),
                )
                pause = due_at - time.monotonic()
                if task is not None and pause <= 0:
                    self._due[task.token] = (time.monotonic() + task.lease_seconds / 3, task)
                    return task
                self._changed.wait(pause)
        return None

    def _ask(self, task: Kept) -> str | None:
        """Renew once; return why the task is over, None if it is not or that is unknown."""
        sent_at = time.monotonic()
        left = task.expires_at - _margin(task) - sent_at
        if left <= 0:
            return "deadline"
        try:
            answer = self._renew(task.token, min(left, task.lease_seconds / 6, _LONGEST_REQUEST_SECONDS))
        except (LeaseLostError, NotFoundError):
            return "lost"
        except Exception:  # the API is away, or the key was revoked: ask again while the lease lasts
            self._hurry(task)
            return None
        if not isinstance(answer, dict) or "cancel_requested" not in answer:  # a proxy has answered
            self._hurry(task)
            return None
        task.expires_at = max(task.expires_at, sent_at + task.lease_seconds)
        task.is_overdue = answer.get("is_overdue", False)
        if order := answer.get("order"):
            task.hear(order)
        return CANCELLED if answer["cancel_requested"] else None

    def _hurry(self, task: Kept) -> None:
        """Ask again soon: the next third of the lease may be its last."""
        with self._changed:
            if task.token in self._due:
                soon = time.monotonic() + min(1.0, task.lease_seconds / 15)
                self._due[task.token] = (soon, task)


def _margin(task: Kept) -> float:
    """How long before its lease's end a task is over here: it is to have ended when another may have it."""
    return min(max(1.0, task.lease_seconds / 5), task.lease_seconds / 3)
