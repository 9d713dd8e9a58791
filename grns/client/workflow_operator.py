"""What operators do with the workflows of a client: list, pause, seal, cancel and redrive them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from grns.client.arguments import known_id, known_limit
from grns.nats import JetStream
from grns.operations.service import Operation
from grns.operations.workflows import cancel_workflow, redrive_workflow
from grns.postgres.database import Database, Session
from grns.postgres.paging import Page
from grns.tasks import workflows
from grns.tasks.workflows import WorkflowState, WorkflowStatus

Answer = TypeVar("Answer")


class WorkflowOperatorMethods:
    """The methods of `Client` for workflows that exist."""

    _database: Database | Session
    _transport: JetStream
    _workspace: str
    _actor: str | None

    async def workflows(
        self, status: WorkflowStatus | None = None, *, limit: int = 50, after: str | None = None
    ) -> Page[WorkflowState]:
        """Return workflows, the latest first, page by page: see `list`.

        Args:
            status: only those of this status: `running`, `succeeded`, `failed` or `cancelled`.
        """
        return await workflows.list_workflows(
            self._database,
            workspace=self._workspace,
            status=status,
            limit=known_limit(limit),
            after=after,
        )

    async def get_workflow(self, workflow_id: str) -> WorkflowState:
        """Return the current state of a workflow.

        Raises:
            NotFoundError: there is no such workflow in this workspace.
        """
        return await workflows.read(self._database, known_id(workflow_id), workspace=self._workspace)

    async def pause_workflow(self, workflow_id: str, *, reason: str | None = None) -> WorkflowState:
        """Pause a workflow: no task of it that waits for others is queued until it is resumed.

        Tasks that are queued already, and retries, are run.

        Raises:
            NotFoundError: there is no such workflow in this workspace.
            ConflictError: it has ended.
        """
        return await self._change_workflow(workflows.pause, workflow_id, reason)

    async def seal_workflow(self, workflow_id: str) -> WorkflowState:
        """Seal an open workflow: it takes no more tasks, and ends once those that it has have ended.

        Raises:
            NotFoundError: there is no such workflow in this workspace.
            ContendedError: a transaction that adds tasks has not ended: try again.
        """
        return await workflows.seal(
            self._database, self._transport, known_id(workflow_id), workspace=self._workspace,
            actor=self._actor or "client",
        )  # fmt: skip

    async def resume_workflow(self, workflow_id: str, *, reason: str | None = None) -> WorkflowState:
        """Resume a workflow; one that is not paused stays as it is. Errors are those of `pause_workflow`."""
        return await self._change_workflow(workflows.resume, workflow_id, reason)

    async def cancel_workflow(self, workflow_id: str, *, reason: str | None = None) -> Operation:
        """Cancel the tasks of a workflow that have not ended. Its last tasks run after that.

        Returns:
            The bulk operation that does it.

        Raises:
            NotFoundError: there is no such workflow in this workspace.
            ConflictError: it has ended.
        """
        return await self._change_workflow(cancel_workflow, workflow_id, reason)

    async def redrive_workflow(self, workflow_id: str, *, reason: str | None = None) -> Operation:
        """Run the tasks of a workflow again that have not succeeded, each after those that it needs.

        Until the operation has moved the first of them, the workflow is as it was.

        Returns:
            The bulk operation that does it.

        Raises:
            NotFoundError: there is no such workflow in this workspace.
            ConflictError: it has succeeded, or is being cancelled.
        """
        return await self._change_workflow(redrive_workflow, workflow_id, reason)

    async def _change_workflow(
        self, change: Callable[..., Awaitable[Answer]], workflow_id: str, reason: str | None
    ) -> Answer:
        return await change(
            self._database, self._transport, known_id(workflow_id), workspace=self._workspace,
            actor=self._actor or "client", reason=reason,
        )  # fmt: skip
