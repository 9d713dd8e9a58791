"""Limits of synchronous applications."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from grns.limits.model import LimitKey, TaskLimit
from grns.postgres.paging import Page

if TYPE_CHECKING:
    from grns.sync.client import SyncClient


@dataclass(frozen=True, slots=True)
class SyncTaskLimits:
    """Create, read, pause and delete limits: the methods of `grns.Client.limits`, without `await`."""

    _client: SyncClient

    def put(self, name: str, **options: Any) -> TaskLimit:
        """Create a limit, or replace the one of its name; options are those of `TaskLimits.put`."""
        return self._client.ask(lambda client: client.limits.put(name, **options))

    def get(self, name: str) -> TaskLimit:
        """Return a limit. Raises NotFoundError if there is none."""
        return self._client.ask(lambda client: client.limits.get(name))

    def list(self, *, limit: int = 50, after: str | None = None) -> Page[TaskLimit]:
        """Return limits by name, page by page."""
        return self._client.ask(lambda client: client.limits.list(limit=limit, after=after))

    def keys(self, name: str, *, limit: int = 50) -> Sequence[LimitKey]:
        """Return the keys of a limit that have tasks, those with the most waiting first."""
        return self._client.ask(lambda client: client.limits.keys(name, limit=limit))

    def put_key(self, name: str, key: str, *, max: int | None = None, weight: float = 1.0) -> None:
        """Give one key of a limit numbers of its own: see `TaskLimits.put_key`."""
        self._client.ask(lambda client: client.limits.put_key(name, key, max=max, weight=weight))

    def delete_key(self, name: str, key: str) -> None:
        """Take the numbers of one key back: see `TaskLimits.delete_key`."""
        self._client.ask(lambda client: client.limits.delete_key(name, key))

    def pause(self, name: str, *, reason: str | None = None) -> TaskLimit:
        """Pause a limit: none of its tasks is queued until it is resumed. Those that are queued run."""
        return self._client.ask(lambda client: client.limits.pause(name, reason=reason))

    def resume(self, name: str) -> TaskLimit:
        """Resume a limit."""
        return self._client.ask(lambda client: client.limits.resume(name))

    def delete(self, name: str) -> None:
        """Delete a limit, for all pools. Tasks that wait for room in it alone are queued."""
        self._client.ask(lambda client: client.limits.delete(name))
