"""Schedules of synchronous applications."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from grns.postgres.paging import Page
from grns.schedules.model import Backfill, Pruned, Schedule, ScheduleRun

if TYPE_CHECKING:
    from grns.sync.client import SyncClient


@dataclass(frozen=True, slots=True)
class SyncSchedules:
    """Create, read, pause and delete schedules: the methods of `grns.Client.schedules`, without `await`."""

    _client: SyncClient

    def put(self, name: str, task: Any, payload: Any = None, **options: Any) -> Schedule:
        """Create a schedule, or replace the one of its name; options are those of `Schedules.put`."""
        return self._client.ask(lambda client: client.schedules.put(name, task, payload, **options))

    def get(self, name: str) -> Schedule:
        """Return a schedule. Raises NotFoundError if there is none."""
        return self._client.ask(lambda client: client.schedules.get(name))

    def list(self, *, limit: int = 50, after: str | None = None) -> Page[Schedule]:
        """Return schedules by name, page by page."""
        return self._client.ask(lambda client: client.schedules.list(limit=limit, after=after))

    def runs(self, name: str, *, limit: int = 50, after: str | None = None) -> Page[ScheduleRun]:
        """Return what was decided each time a schedule was due, the latest first."""
        return self._client.ask(lambda client: client.schedules.runs(name, limit=limit, after=after))

    def pause(self, name: str, *, reason: str | None = None) -> Schedule:
        """Pause a schedule. What is due until it is resumed is not submitted, then or later."""
        return self._client.ask(lambda client: client.schedules.pause(name, reason=reason))

    def resume(self, name: str) -> Schedule:
        """Resume a schedule from its next time on, and count its failures from zero."""
        return self._client.ask(lambda client: client.schedules.resume(name))

    def run(self, name: str, *, force: bool = False) -> ScheduleRun:
        """Submit its task now, as `overlap` allows: see `Schedules.run`."""
        return self._client.ask(lambda client: client.schedules.run(name, force=force))

    def backfill(self, name: str, start: datetime, end: datetime, *, dry_run: bool = False) -> Backfill:
        """Submit a task for each time of a range that had none: see `Schedules.backfill`."""
        return self._client.ask(lambda client: client.schedules.backfill(name, start, end, dry_run=dry_run))

    def prune(self, *, dry_run: bool = False) -> Pruned:
        """Delete schedules that no live worker declares any more: see `Schedules.prune`."""
        return self._client.ask(lambda client: client.schedules.prune(dry_run=dry_run))

    def delete(self, name: str) -> None:
        """Delete a schedule. Tasks that it has submitted stay."""
        self._client.ask(lambda client: client.schedules.delete(name))
