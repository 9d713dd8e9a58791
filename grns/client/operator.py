"""What operators do with a client: list and count tasks, pause pools, look at issues."""

from __future__ import annotations

import builtins
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from grns.client.arguments import known_id, known_limit, short
from grns.client.workflow_operator import WorkflowOperatorMethods
from grns.diagnose.task_log import read_task_log
from grns.errors import NotFoundError
from grns.model.filter import parse
from grns.model.log_line import Level, TaskLogLine
from grns.model.output_view import OutputEvent
from grns.nats import JetStream
from grns.outbox.events import LogEvent, history
from grns.postgres.database import Database, Session
from grns.postgres.paging import Page
from grns.stats.issues import Issue, State, list_issues
from grns.tasks import search
from grns.tasks.output import OutputHub
from grns.tasks.pause_pools import PoolPauses
from grns.tasks.pause_tasks import pause_tasks, resume_tasks
from grns.tasks.pauses import Pause
from grns.tasks.quotas import put_quota
from grns.tasks.redrive import reset
from grns.tasks.search import Count, TaskSummary
from grns.tasks.signals import send_signal
from grns.tasks.steps import TaskStep, list_steps


class OperatorMethods(WorkflowOperatorMethods):
    """The methods of `Client` for tools: those of the command line, the API and the dashboard."""

    _database: Database | Session
    _transport: JetStream
    _workspace: str
    _actor: str | None
    _outputs: OutputHub | None

    async def list(self, query: str = "", *, limit: int = 50, after: str | None = None) -> Page[TaskSummary]:
        """Return tasks, the latest first.

        Args:
            query: a filter, such as `status:dead pool:shop`: see `docs/triage.md`. Defaults to all tasks.
            limit: maximum number of rows, at most 1000.
            after: `next_cursor` of the page before.

        Returns:
            A page with `rows` and `next_cursor`, which is None on the last page.

        Raises:
            InvalidInputError: the filter, the limit or the cursor is invalid.

        Example:
            page = await client.list("status:dead type:fetch_page", limit=10)
        """
        return await search.list_tasks(
            self._database,
            workspace=self._workspace,
            wanted=parse(query),
            limit=known_limit(limit),
            after=after,
        )

    async def events(self, task_id: str) -> builtins.list[LogEvent]:
        """Return the events of a task, in order."""
        return await history(self._database, known_id(task_id), self._workspace)

    async def logs(
        self, task_id: str, *, level: Level = "DEBUG", limit: int = 200
    ) -> builtins.list[TaskLogLine]:
        """Return the latest lines of the log of a task, in order.

        They say what became of it (`source` is `grns`), and what its handlers have logged with `ctx.log`.

        Args:
            task_id: id of the task.
            level: the lowest level: `DEBUG`, `INFO`, `WARN`, `ERROR` or `CRITICAL`.
            limit: maximum number of lines, at most 1000.

        Raises:
            NotFoundError: there is no such task in this workspace.
            InvalidInputError: there is no such level, or the limit is invalid.

        Example:
            for line in await client.logs(task_id, level="WARN"):
                print(line.at, line.level, line.message, line.fields or "")
        """
        return await read_task_log(
            self._database, known_id(task_id), workspace=self._workspace, level=level,
            limit=known_limit(limit),
        )  # fmt: skip

    async def steps(self, task_id: str, *, limit: int = 1000, after: str | None = None) -> Page[TaskStep]:
        """Return the steps that the attempts of a task have recorded, in order.

        Values of more than 4 KiB are left out. Arguments and answer are those of `list`.
        """
        return await list_steps(
            self._database,
            known_id(task_id),
            workspace=self._workspace,
            limit=known_limit(limit),
            after=after,
        )

    def stream(self, task_id: str, *, after: str | None = None) -> AsyncGenerator[OutputEvent, None]:
        """Watch what a task streams, from its beginning, until the task ends.

        The broker keeps output for 15 minutes, in memory. Take what comes as text that can be replaced: after
        a `reset`, forget all of it.

        Args:
            task_id: id of the task.
            after: `place` of the last chunk that you have, to go on behind it.

        Yields:
            Events: `state`, `chunk`, `reset`, `gap`, and `end` as the last one.

        Raises:
            NotFoundError: there is no such task.
            InvalidInputError: `bad_parameter`: `after` is no place.

        Example:
            async for one in client.stream(handle.id):
                if one.event == "reset":
                    text = ""
                elif one.kind == "text":
                    text += one.data
        """
        if self._outputs is None:
            self._outputs = OutputHub(self._database, self._transport)
        return self._outputs.events(known_id(task_id), workspace=self._workspace, after=after)

    async def signal(
        self,
        task_id: str,
        name: str,
        value: Any = None,
        *,
        signal_id: UUID | None = None,
        connection: Any = None,
    ) -> str:
        """Send a signal to a task, whose handler asks for it with `ctx.wait_for_signal`, now or later.

        Args:
            task_id: id of the task.
            name: name of the signal, 1 to 64 characters of `A-Za-z0-9_.-`.
            value: JSON of at most 64 KiB.
            signal_id: id of the signal: sent again, it does nothing. Defaults to a new one.
            connection: as in `submit`: the signal is sent if you commit.

        Returns:
            `woken`: the task waited for it; `kept` until the task asks for it; `repeated`: sent before.

        Raises:
            NotFoundError: there is no such task in this workspace.
            ConflictError: the task has ended.
            InvalidInputError: an argument is invalid, or the task has 1,000 signals that it has not taken.

        Example:
            await client.signal(task_id, "approved", {"by": "ann"})
        """
        return await send_signal(
            self._database, self._transport, known_id(task_id), name, value, signal_id=signal_id,
            workspace=self._workspace, actor=self._actor, connection=connection,
        )  # fmt: skip

    async def reset(self, task_id: str, *, to: str, reason: str | None = None) -> str:
        """Run an ended task again from one of its steps: that step, and those after it, are forgotten.

        Args:
            task_id: id of a task that has failed, died or been cancelled.
            to: name of the step. Signals that it, and those after it, had taken can be taken again.
            reason: why, for the log.

        Returns:
            `redriven`.

        Raises:
            NotFoundError: there is no such task in this workspace, or it has no such step.
            ConflictError: the task has not ended, or has succeeded.

        Example:
            await client.reset(task_id, to="write_report")
        """
        return await reset(
            self._database, self._transport, known_id(task_id), step=to, workspace=self._workspace,
            actor=self._actor, reason=short(reason),
        )  # fmt: skip

    async def count(self, query: str = "") -> Count:
        """Count the tasks of a filter.

        Returns:
            `number`, which is a lower bound unless `is_exact`.

        Raises:
            InvalidInputError: the filter is invalid.

        Example:
            dead = (await client.count("status:dead")).number
        """
        return await search.count(self._database, workspace=self._workspace, wanted=parse(query))

    async def put_quota(self, pool: str, max_queued: int | None) -> None:
        """Set how many tasks of a pool may be queued. While as many are, submissions raise BacklogFullError.

        The scheduler looks once a second: within it, more may come.

        Args:
            pool: name of the pool.
            max_queued: 1 to 100,000; None takes the quota away.

        Raises:
            InvalidInputError: an argument is invalid (`bad_quota`).

        Example:
            await client.put_quota("thumbnails", 10_000)
        """
        await put_quota(
            self._database, pool, max_queued, workspace=self._workspace, actor=self._actor or "client"
        )

    async def pause(
        self,
        pool: str,
        task_type: str | None = None,
        *,
        reason: str | None = None,
        until: float | timedelta | datetime | None = None,
    ) -> Pause:
        """Pause a pool, or one task type of it. Workers claim nothing more of it; running tasks continue.

        Args:
            pool: name of the pool.
            task_type: name of a task type. Defaults to all of the pool.
            reason: text for operators, at most 1,000 characters.
            until: time or duration (seconds or `timedelta`) after which it ends. Defaults to `resume`.

        Example:
            await client.pause("shop", "send_mail", reason="provider is down", until=timedelta(hours=1))
        """
        return await self._pauses().pause(
            pool,
            task_type,
            actor=self._actor or "client",
            reason=reason,
            until=until.total_seconds() if isinstance(until, timedelta) else until,
        )

    async def resume(self, pool: str, task_type: str | None = None) -> Pause | None:
        """End a pause. That of a whole pool ends none of its task types.

        Returns:
            The pause that has ended; None if there was none.

        Raises:
            ConflictError: a budget has paused it: allow more of the budget.
        """
        return await self._pauses().resume(pool, task_type, actor=self._actor or "client")

    async def issues(
        self, state: State | Sequence[State] | None = None, *, limit: int = 50, after: str | None = None
    ) -> Page[Issue]:
        """Return issues: failures grouped by cause, the latest seen first.

        Args:
            state: `new`, `resolved`, …: one, some, or all by default.
            limit: maximum number of rows, at most 1000.
            after: `next_cursor` of the page before.

        Example:
            for issue in (await client.issues("new")).rows:
                print(issue.open_count, issue.error_class, issue.message)
        """
        return await list_issues(
            self._database, workspace=self._workspace, state=state, limit=known_limit(limit), after=after
        )

    def _pauses(self) -> PoolPauses:
        return PoolPauses(database=self._database, transport=self._transport, workspace=self._workspace)

    async def pause_task(self, task_id: str, *, reason: str | None = None) -> str:
        """Pause a task that does not run: it waits until it is resumed, whatever else it waits for.

        Returns:
            `paused`; otherwise the status of the task, which runs or has ended.

        Raises:
            NotFoundError: there is no such task in this workspace.
        """
        return await self._answer(pause_tasks, task_id, reason)

    async def resume_task(self, task_id: str, *, reason: str | None = None) -> str:
        """Resume a paused task: it waits for the tasks that it needs, or for its time, or is queued.

        Returns:
            `resumed`; otherwise the status of the task, which is not paused.

        Raises:
            NotFoundError: there is no such task in this workspace.
        """
        return await self._answer(resume_tasks, task_id, reason)

    async def _answer(
        self, change: Callable[..., Awaitable[dict[str, str]]], task_id: str, reason: str | None
    ) -> str:
        answers = await change(
            self._database, self._transport, [known_id(task_id)], workspace=self._workspace,
            actor=self._actor, reason=short(reason),
        )  # fmt: skip
        if task_id not in answers:
            raise NotFoundError(f"there is no task {task_id} in workspace {self._workspace}")
        return answers[task_id]
