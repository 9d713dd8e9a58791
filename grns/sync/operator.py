"""What operators do with a synchronous client: the methods of `grns.client.operator`, without `await`."""

from __future__ import annotations

import builtins
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

from grns.client.client import Client
from grns.model.log_line import Level, TaskLogLine
from grns.operations.service import Operation
from grns.postgres.paging import Page
from grns.stats.issues import Issue, State
from grns.tasks.pauses import Pause
from grns.tasks.search import Count, TaskSummary
from grns.tasks.workflows import WorkflowState, WorkflowStatus

Answer = TypeVar("Answer")


class SyncOperatorMethods:
    """The methods of `grns.sync.Client` for tools."""

    @abstractmethod
    def ask(self, question: Callable[[Client], Awaitable[Answer]]) -> Answer:
        """Call the async client."""

    def list(self, query: str = "", *, limit: int = 50, after: str | None = None) -> Page[TaskSummary]:
        """Return tasks: see `grns.Client.list`."""
        return self.ask(lambda client: client.list(query, limit=limit, after=after))

    def logs(self, task_id: str, *, level: Level = "DEBUG", limit: int = 200) -> builtins.list[TaskLogLine]:
        """Return the latest lines of the log of a task, in order: see `grns.Client.logs`."""
        return self.ask(lambda client: client.logs(task_id, level=level, limit=limit))

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

    def pause_task(self, task_id: str, *, reason: str | None = None) -> str:
        """Pause a task: see `grns.Client.pause_task`."""
        return self.ask(lambda client: client.pause_task(task_id, reason=reason))

    def resume_task(self, task_id: str, *, reason: str | None = None) -> str:
        """Resume a task: see `grns.Client.resume_task`."""
        return self.ask(lambda client: client.resume_task(task_id, reason=reason))

    def workflows(
        self, status: WorkflowStatus | None = None, *, limit: int = 50, after: str | None = None
    ) -> Page[WorkflowState]:
        """Return workflows: see `grns.Client.workflows`."""
        return self.ask(lambda client: client.workflows(status, limit=limit, after=after))

    def get_workflow(self, workflow_id: str) -> WorkflowState:
        """Return the current state of a workflow: see `grns.Client.get_workflow`."""
        return self.ask(lambda client: client.get_workflow(workflow_id))

    def pause_workflow(self, workflow_id: str, *, reason: str | None = None) -> WorkflowState:
        """Pause a workflow: see `grns.Client.pause_workflow`."""
        return self.ask(lambda client: client.pause_workflow(workflow_id, reason=reason))

    def reset(self, task_id: str, *, to: str, reason: str | None = None) -> str:
        """Run an ended task again from one of its steps: see `grns.Client.reset`."""
        return self.ask(lambda client: client.reset(task_id, to=to, reason=reason))

    def seal_workflow(self, workflow_id: str) -> WorkflowState:
        """Seal an open workflow: see `grns.Client.seal_workflow`."""
        return self.ask(lambda client: client.seal_workflow(workflow_id))

    def resume_workflow(self, workflow_id: str, *, reason: str | None = None) -> WorkflowState:
        """Resume a workflow: see `grns.Client.resume_workflow`."""
        return self.ask(lambda client: client.resume_workflow(workflow_id, reason=reason))

    def put_quota(self, pool: str, max_queued: int | None) -> None:
        """Set how many tasks of a pool may be queued: see `grns.Client.put_quota`."""
        self.ask(lambda client: client.put_quota(pool, max_queued))

    def cancel_workflow(self, workflow_id: str, *, reason: str | None = None) -> Operation:
        """Cancel the tasks of a workflow: see `grns.Client.cancel_workflow`."""
        return self.ask(lambda client: client.cancel_workflow(workflow_id, reason=reason))

    def redrive_workflow(self, workflow_id: str, *, reason: str | None = None) -> Operation:
        """Run the tasks of a workflow again: see `grns.Client.redrive_workflow`."""
        return self.ask(lambda client: client.redrive_workflow(workflow_id, reason=reason))
