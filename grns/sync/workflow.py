"""Workflows of synchronous applications."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar, overload

from grns.client.arguments import SubmissionReader
from grns.client.client import Client as AsyncClient
from grns.client.workflow import WorkflowBuilder, WorkflowHandle, extension
from grns.model.submission import Failures
from grns.operations.service import Operation
from grns.sync.handle import SyncTaskHandle
from grns.tasks.workflows import WorkflowState

if TYPE_CHECKING:
    from grns.sync.client import SyncClient
    from grns.worker.handler import Handler

PayloadT = TypeVar("PayloadT")
ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class SyncWorkflowHandle:
    """A workflow that was submitted with a `grns.sync.Client`: as `grns.WorkflowHandle`, without `await`.

    Attributes:
        id: id of the workflow.
        tasks: handles of its tasks, by name.
    """

    id: str
    tasks: Mapping[str, SyncTaskHandle[Any]] = field(repr=False)
    _client: SyncClient = field(repr=False)

    def get(self) -> WorkflowState:
        """Return the current state of the workflow."""
        return self._client.get_workflow(self.id)

    def wait(self, *, timeout: float | timedelta | None = None) -> WorkflowState:
        """Wait until all of its tasks have ended: see `grns.WorkflowHandle.wait`."""

        async def ask(client: AsyncClient) -> WorkflowState:
            return await WorkflowHandle(self.id, {}, client).wait(timeout=timeout)

        return self._client.ask(ask)

    @overload
    def submit(
        self, task: Handler[PayloadT, ResultT], payload: PayloadT | None = None, **options: Any
    ) -> SyncTaskHandle[ResultT]: ...
    @overload
    def submit(self, task: str, payload: Any = None, **options: Any) -> SyncTaskHandle[Any]: ...

    def submit(
        self, task: Any, payload: Any = None, *, connection: Any = None, **options: Any
    ) -> SyncTaskHandle[Any]:
        """Add a task to the workflow, which is open: see `grns.WorkflowHandle.submit`."""
        fields = {"task": task, "payload": payload, **options}
        (handle,) = self.submit_many([fields], connection=connection)
        return handle

    def submit_many(
        self, submissions: Iterable[Mapping[str, Any]], *, connection: Any = None
    ) -> list[SyncTaskHandle[Any]]:
        """Add tasks to the workflow, which is open, all or none: see `grns.WorkflowHandle.submit_many`."""
        plan, handlers = extension(self._client._reader, self.id, submissions)
        return self._client._submit_workflow(plan, handlers, connection)

    def seal(self) -> WorkflowState:
        """Seal the workflow: see `grns.Client.seal_workflow`."""
        return self._client.seal_workflow(self.id)

    def pause(self, *, reason: str | None = None) -> WorkflowState:
        """Pause the workflow: see `grns.Client.pause_workflow`."""
        return self._client.pause_workflow(self.id, reason=reason)

    def resume(self, *, reason: str | None = None) -> WorkflowState:
        """Resume the workflow: see `grns.Client.resume_workflow`."""
        return self._client.resume_workflow(self.id, reason=reason)

    def cancel(self, *, reason: str | None = None) -> Operation:
        """Cancel the tasks that have not ended: see `grns.Client.cancel_workflow`."""
        return self._client.cancel_workflow(self.id, reason=reason)

    def redrive(self, *, reason: str | None = None) -> Operation:
        """Run the tasks again that have not succeeded: see `grns.Client.redrive_workflow`."""
        return self._client.redrive_workflow(self.id, reason=reason)


class SyncWorkflow(WorkflowBuilder):
    """Tasks that need each other: as `grns.Workflow`, with a `submit` without `await`.

    Example:
        flow = client.workflow("report")
        pages = [flow.task(fetch_page, Page(url=url)) for url in urls]
        flow.task(write_report, needs=pages)
        run = flow.submit()
    """

    def __init__(
        self,
        client: SyncClient,
        reader: SubmissionReader,
        name: str,
        fail_after: Failures | None = None,
        *,
        is_open: bool = False,
    ) -> None:
        super().__init__(reader, name, fail_after, is_open=is_open)
        self._client = client

    def submit(self, *, connection: Any = None) -> SyncWorkflowHandle:
        """Create all tasks, or none: see `grns.Workflow.submit`; `connection` as in `Client.submit`."""
        handles = self._client._submit_workflow(self.planned(), self._handlers, connection)
        return SyncWorkflowHandle(self.id, dict(zip(self._prepared, handles, strict=True)), self._client)
