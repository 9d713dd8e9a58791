"""What operators do with a synchronous client: the methods of `grns.client.operator`, without `await`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

from grns.client.client import Client
from grns.postgres.paging import Page
from grns.stats.issues import Issue, State
from grns.tasks.pauses import Pause
from grns.tasks.search import Count, TaskSummary

Answer = TypeVar("Answer")


class SyncOperatorMethods:
    """The methods of `grns.sync.Client` for tools."""

    @abstractmethod
    def ask(self, question: Callable[[Client], Awaitable[Answer]]) -> Answer:
        """Call the async client."""

    def list(self, query: str = "", *, limit: int = 50, after: str | None = None) -> Page[TaskSummary]:
        """Return tasks: see `grns.Client.list`."""
        return self.ask(lambda client: client.list(query, limit=limit, after=after))

    def count(self, query: str = "") -> Count:
        """Count tasks: see `grns.Client.count`."""
        return self.ask(lambda client: client.count(query))

    def pause(
        self,
        pool: str,
        task_type: str | None = None,
        *,
        reason: str | None = None,
        until: float | timedelta | datetime | None = None,
    ) -> Pause:
        """Pause a pool: see `grns.Client.pause`."""
        return self.ask(lambda client: client.pause(pool, task_type, reason=reason, until=until))

    def resume(self, pool: str, task_type: str | None = None) -> Pause | None:
        """End a pause: see `grns.Client.resume`."""
        return self.ask(lambda client: client.resume(pool, task_type))

    def issues(
        self, state: State | Sequence[State] | None = None, *, limit: int = 50, after: str | None = None
    ) -> Page[Issue]:
        """Return issues: see `grns.Client.issues`."""
        return self.ask(lambda client: client.issues(state, limit=limit, after=after))
