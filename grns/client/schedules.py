"""Schedules of a client: tasks that are submitted again and again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from grns.client.arguments import SubmissionReader
from grns.model.duration import seconds_of
from grns.model.json import loads_stored
from grns.nats import JetStream
from grns.postgres.database import Database, Session
from grns.postgres.paging import Page
from grns.schedules import service
from grns.schedules.backfill import backfill
from grns.schedules.model import Backfill, Pruned, Schedule, ScheduleRun, schedule_spec
from grns.schedules.scheduler import run_now
from grns.schedules.ticks import CatchUp, Overlap


@dataclass(frozen=True, slots=True)
class Schedules:
    """Create, read, pause and delete schedules: `client.schedules`."""

    _database: Database | Session
    _transport: JetStream
    _reader: SubmissionReader
    _actor: str

    async def put(
        self,
        name: str,
        task: Any,
        payload: Any = None,
        *,
        cron: str | None = None,
        every: float | timedelta | None = None,
        time_zone: str = "UTC",
        pool: str | None = None,
        priority: int = 2,
        max_attempts: int | None = None,
        overlap: Overlap = "skip",
        catch_up: CatchUp = "latest",
        window: float | timedelta = timedelta(days=1),
        jitter_seconds: float = 0.0,
        pause_after_failures: int | None = None,
    ) -> Schedule:
        """Create a schedule, or replace the one of its name. A new rhythm begins now.

        Args:
            name: name of the schedule, 1 to 64 characters of `A-Za-z0-9_-`.
            task, payload, pool, priority, max_attempts: as of `Client.submit`.
            cron, time_zone: five fields, by the clocks of a time zone: see `Pool.cron`.
            every: interval instead, in seconds or as a `timedelta`: see `Pool.every`.
            overlap, catch_up, window, jitter_seconds, pause_after_failures: see `Pool.cron`.

        Raises:
            InvalidInputError: an argument is invalid (`bad_schedule`, `bad_submission`).

        Example:
            await client.schedules.put("report", write_report, cron="0 9 * * 1-5", time_zone="Europe/Vienna")
        """
        fields = {"task": task, "payload": payload, "pool": pool, "priority": priority}
        prepared = self._reader.prepare({**fields, "max_attempts": max_attempts})
        said = prepared.submission
        spec = schedule_spec(
            name=name, task_type=said.task_type, agent_type=said.agent_type,
            payload=loads_stored(prepared.payload), priority=priority, max_attempts=max_attempts, cron=cron,
            every_seconds=None if every is None else seconds_of(every), time_zone=time_zone, overlap=overlap,
            catch_up=catch_up, window_seconds=seconds_of(window),
            jitter_seconds=jitter_seconds, pause_after_failures=pause_after_failures,
        )  # fmt: skip
        return await service.put(
            self._database,
            spec,
            workspace=self._reader.workspace,
            actor=self._actor,
            limits=self._reader.limits,
            secret=prepared.secret,
        )

    async def get(self, name: str) -> Schedule:
        """Return a schedule.

        Raises:
            NotFoundError: there is no such schedule in this workspace.
        """
        return await service.read(self._database, name, workspace=self._reader.workspace)

    async def list(self, *, limit: int = 50, after: str | None = None) -> Page[Schedule]:
        """Return schedules by name, page by page: see `Client.list`."""
        return await service.list_schedules(
            self._database, workspace=self._reader.workspace, limit=limit, after=after
        )

    async def runs(self, name: str, *, limit: int = 50, after: str | None = None) -> Page[ScheduleRun]:
        """Return what was decided each time a schedule was due, the latest first."""
        return await service.list_runs(
            self._database, name, workspace=self._reader.workspace, limit=limit, after=after
        )

    async def pause(self, name: str, *, reason: str | None = None) -> Schedule:
        """Pause a schedule. What is due until it is resumed is not submitted, then or later.

        Raises:
            NotFoundError: there is no such schedule in this workspace.
        """
        return await service.pause(
            self._database, name, workspace=self._reader.workspace, actor=self._actor, reason=reason
        )

    async def resume(self, name: str) -> Schedule:
        """Resume a schedule from its next time on, and count its failures from zero.

        Raises:
            NotFoundError: there is no such schedule in this workspace.
        """
        return await service.resume(self._database, name, workspace=self._reader.workspace, actor=self._actor)

    async def run(self, name: str, *, force: bool = False) -> ScheduleRun:
        """Decide about a schedule now, also if it is paused: submit its task, as `overlap` allows.

        Its next time stays.

        Args:
            force: submit a task even if the one before has not ended.

        Returns:
            The decision: its `outcome` is `submitted`, with the id of the task, or `skipped`.

        Raises:
            NotFoundError: there is no such schedule in this workspace.
        """
        return await run_now(
            self._database, self._transport, name, workspace=self._reader.workspace, actor=self._actor,
            limits=self._reader.limits, is_forced=force,
        )  # fmt: skip

    async def backfill(self, name: str, start: datetime, end: datetime, *, dry_run: bool = False) -> Backfill:
        """Submit a task for each time from `start` on, before `end`, that had none; paused or not.

        Times that were missed or skipped, or that lie in a pause or before the schedule was created, get
        their task; unless `overlap` is `allow`, each waits for the end of the one before.

        Args:
            start, end: times with a zone; `end` is not in the future. The range has at most 1,000 times.
            dry_run: count the times, and submit nothing.

        Returns:
            How many times the range has, how many got a task, and how many were left alone.

        Raises:
            NotFoundError: there is no such schedule in this workspace.
            InvalidInputError: the range is invalid, or has too many times (`bad_backfill`).

        Example:
            await client.schedules.backfill("report", datetime(2026, 1, 1, tzinfo=UTC), datetime.now(UTC))
        """
        return await backfill(
            self._database, self._transport, name, start, end, workspace=self._reader.workspace,
            actor=self._actor, limits=self._reader.limits, is_trial=dry_run,
        )  # fmt: skip

    async def prune(self, *, dry_run: bool = False) -> Pruned:
        """Delete up to 1,000 schedules that were declared in code and that no live worker declares any more.

        Each live worker of the pool started later than the last one that declared the schedule. Schedules of
        a pool without a live worker, or with one that started less than a minute ago, stay.

        Args:
            dry_run: return the schedules, and delete none.

        Returns:
            The schedules that were deleted.
        """
        return await service.prune(
            self._database, workspace=self._reader.workspace, actor=self._actor, is_trial=dry_run
        )

    async def delete(self, name: str) -> None:
        """Delete a schedule. Tasks that it has submitted stay.

        Raises:
            NotFoundError: there is no such schedule in this workspace.
        """
        await service.delete(self._database, name, workspace=self._reader.workspace, actor=self._actor)
