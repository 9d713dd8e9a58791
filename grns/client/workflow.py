"""Tasks that need each other, submitted together."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, overload

from grns.client.arguments import SubmissionReader, checked_timeout
from grns.errors import InvalidInputError, WaitTimeoutError
from grns.model.submission import Failures, Need, Outcome
from grns.operations.service import Operation
from grns.tasks.submit import NewWorkflow, numbered_after
from grns.tasks.workflow_plan import MOST_TASKS, PlannedWorkflow, check_escalation, new_workflow_id
from grns.tasks.workflows import WorkflowState

if TYPE_CHECKING:
    from grns.client.client import Client
    from grns.client.handle import TaskHandle
    from grns.tasks.submit import Prepared
    from grns.worker.handler import Handler

PayloadT = TypeVar("PayloadT")
ResultT = TypeVar("ResultT")
_FIRST_LOOK_SECONDS, _LONGEST_LOOK_SECONDS = 0.05, 1.0


# A last task of a batch: its handler, or the arguments of `Client.submit`.
LastTask: TypeAlias = "Handler[Any, Any] | Mapping[str, Any] | None"


@contextmanager
def left_open(workflow_id: str) -> Iterator[None]:
    """Add to an error of a batch's block what becomes of the batch."""
    try:
        yield
    except BaseException as error:
        error.add_note(
            f"batch {workflow_id} was not sealed here: if it is open still, add the rest of its tasks, or end"
            f" it with `grns workflow seal {workflow_id}` or `grns workflow cancel {workflow_id}`"
        )
        raise


@dataclass(frozen=True, slots=True)
class WorkflowTask:
    """A task of a workflow. Pass it in `needs` of others.

    Attributes:
        id: id of the task, which it has before the workflow is submitted.
        name: its name in the workflow, and in `ctx.results()` of the tasks that need it.
    """

    id: str
    name: str


@dataclass(frozen=True, slots=True)
class WorkflowHandle:
    """A workflow that was submitted.

    Attributes:
        id: id of the workflow. Other tasks may need it, as they need a task.
        tasks: handles of its tasks, by name.

    Example:
        run = await flow.submit()
        assert (await run.wait(timeout=60)).status == "succeeded"
        text = await run.tasks["write_report"].result()
    """

    id: str
    tasks: Mapping[str, TaskHandle[Any]] = field(repr=False)
    _client: Client = field(repr=False)

    async def get(self) -> WorkflowState:
        """Return the current state of the workflow."""
        return await self._client.get_workflow(self.id)

    async def wait(self, *, timeout: float | timedelta | None = None) -> WorkflowState:
        """Wait until all of its tasks have ended, but for last ones (`on_success`), and return its state.

        Args:
            timeout: maximum time to wait, in seconds or as a `timedelta`. Defaults to no limit.

        Raises:
            WaitTimeoutError: it has not ended in time.
        """
        seconds, pause = checked_timeout(timeout), _FIRST_LOOK_SECONDS
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while (state := await self.get()).ended_at is None:
                    await asyncio.sleep(pause)
                    pause = min(pause * 1.5, _LONGEST_LOOK_SECONDS)
                return state
        raise WaitTimeoutError(f"workflow {self.id} has not ended within {seconds} s")

    @overload
    async def submit(
        self, task: Handler[PayloadT, ResultT], payload: PayloadT | None = None, **options: Any
    ) -> TaskHandle[ResultT]: ...
    @overload
    async def submit(self, task: str, payload: Any = None, **options: Any) -> TaskHandle[Any]: ...

    async def submit(
        self, task: Any, payload: Any = None, *, connection: Any = None, **options: Any
    ) -> TaskHandle[Any]:
        """Add a task to the workflow, which is open.

        Args:
            task, payload, connection, options: as in `Client.submit`, and `name`, its name in the workflow.

        Raises:
            InvalidInputError: an argument is invalid; nothing was created.
            ConflictError: the workflow is sealed; nothing was created. With `connection`, this and the next
                one are errors of its driver.
            NotFoundError: there is no such workflow in this workspace.
            UnavailableError: Postgres cannot be reached; nothing was created.
            OutcomeUnknownError: the task may exist; submit again with the same idempotency key.
        """
        fields = {"task": task, "payload": payload, **options}
        (handle,) = await self.submit_many([fields], connection=connection)
        return handle

    async def submit_many(
        self, submissions: Iterable[Mapping[str, Any]], *, connection: Any = None
    ) -> list[TaskHandle[Any]]:
        """Add up to 10,000 tasks to the workflow, which is open: all or none.

        Args:
            submissions: mappings with the arguments of `submit`.
            connection: as in `submit`.

        Raises:
            InvalidInputError, ConflictError, NotFoundError, UnavailableError, OutcomeUnknownError: as of
                `submit`.
        """
        plan, handlers = extension(self._client._reader, self.id, submissions)
        return await self._client._submit_workflow(plan, handlers, connection)

    async def seal(self) -> WorkflowState:
        """Seal the workflow: see `grns.Client.seal_workflow`."""
        return await self._client.seal_workflow(self.id)

    async def pause(self, *, reason: str | None = None) -> WorkflowState:
        """Pause the workflow: see `grns.Client.pause_workflow`."""
        return await self._client.pause_workflow(self.id, reason=reason)

    async def resume(self, *, reason: str | None = None) -> WorkflowState:
        """Resume the workflow: see `grns.Client.resume_workflow`."""
        return await self._client.resume_workflow(self.id, reason=reason)

    async def cancel(self, *, reason: str | None = None) -> Operation:
        """Cancel the tasks that have not ended: see `grns.Client.cancel_workflow`."""
        return await self._client.cancel_workflow(self.id, reason=reason)

    async def redrive(self, *, reason: str | None = None) -> Operation:
        """Run the tasks again that have not succeeded: see `grns.Client.redrive_workflow`."""
        return await self._client.redrive_workflow(self.id, reason=reason)


def extension(
    reader: SubmissionReader, workflow_id: str, submissions: Iterable[Mapping[str, Any]]
) -> tuple[PlannedWorkflow, list[Any]]:
    """Return tasks that are added to an open workflow, checked, and their handlers, or names."""
    tasks: list[Prepared] = []
    names: dict[str, str] = {}
    handlers: list[Any] = []
    for one in submissions:
        fields = {"unique": None, **one}
        name = fields.pop("name", None)
        prepared = numbered_after(reader.prepare(fields), tasks[-1].id if tasks else "")
        if name is not None:
            names[prepared.id] = name
        tasks.append(prepared)
        handlers.append(fields.get("task"))
    if not 1 <= len(tasks) <= MOST_TASKS:
        raise InvalidInputError(
            "bad_submission", f"add 1 to {MOST_TASKS:,} tasks at once, not {len(tasks):,}"
        )
    added = NewWorkflow(workflow_id, reader.workspace, "", names, extends=True)
    return PlannedWorkflow(added, tasks), handlers


class WorkflowBuilder:
    """Tasks that need each other, until they are submitted.

    Attributes:
        id: id that the workflow will have.
        name: its name.
    """

    def __init__(
        self,
        reader: SubmissionReader,
        name: str,
        fail_after: Failures | None = None,
        *,
        is_open: bool = False,
    ) -> None:
        check_escalation(fail_after, reader.limits)
        self.id = new_workflow_id()
        self._fail_after = fail_after
        self._is_open = is_open
        self.name = name
        self._reader = reader
        self._prepared: dict[str, Prepared] = {}
        self._handlers: list[Any] = []
        self._last: set[str] = set()
        self._latest = ""
        self._trace_id: str | None = None
        self._counts: Counter[str] = Counter()

    def task(
        self,
        task: Any,
        payload: Any = None,
        *,
        name: str | None = None,
        needs: Sequence[WorkflowTask | TaskHandle[Any] | Need | str] = (),
        required: int | None = None,
        **options: Any,
    ) -> WorkflowTask:
        """Add a task.

        Args:
            task, payload, needs, required, options: as in `Client.submit`. `needs` may have tasks of this
                workflow.
            name: its name. Defaults to that of the task type, with `#2`, `#3`, … from the second one on.

        Raises:
            InvalidInputError: an argument is invalid, or the name is taken.
        """
        if len(self._prepared) == MOST_TASKS:
            raise InvalidInputError("bad_submission", f"a workflow has at most {MOST_TASKS:,} tasks")
        fields = {
            "task": task, "payload": payload, "needs": needs, "required": required, "unique": None, **options,
        }  # fmt: skip
        if self._trace_id is not None:
            fields.setdefault("trace_id", self._trace_id)
        prepared = numbered_after(self._reader.prepare(fields), self._latest)
        self._trace_id = self._trace_id or prepared.trace_id
        task_type = prepared.submission.task_type
        self._counts[task_type] += 1
        count = self._counts[task_type]
        name = name or (task_type if count == 1 else f"{task_type}#{count}")
        if name in self._prepared:
            raise InvalidInputError("bad_submission", f"name: the workflow has a task {name!r}")
        self._prepared[name] = prepared
        self._latest = prepared.id
        self._handlers.append(task)
        return WorkflowTask(prepared.id, name)

    def on_success(self, task: Any, payload: Any = None, **options: Any) -> WorkflowTask:
        """Add a last task, which runs when all others have succeeded; it is cancelled if one has not."""
        return self._last_task("success", task, payload, options)

    def on_failure(self, task: Any, payload: Any = None, **options: Any) -> WorkflowTask:
        """Add a last task, which runs when all others have ended and one of them has not succeeded."""
        return self._last_task("failure", task, payload, options)

    def on_end(self, task: Any, payload: Any = None, **options: Any) -> WorkflowTask:
        """Add a last task, which runs when all others have ended."""
        return self._last_task("end", task, payload, options)

    def add_last(self, **tasks: Any) -> None:
        """Add last tasks by the names of the methods above: handlers, or arguments as mappings."""
        for method, task in tasks.items():
            if task is not None:
                getattr(self, method)(**(task if isinstance(task, Mapping) else {"task": task}))

    def planned(self) -> PlannedWorkflow:
        """Return the workflow and its tasks. Raises InvalidInputError if it is empty."""
        if len(self._prepared) == len(self._last) and not self._is_open:
            raise InvalidInputError("bad_submission", "the workflow has no task")
        names = {one.id: name for name, one in self._prepared.items()}
        workflow = NewWorkflow(
            self.id, self._reader.workspace, self.name, names, self._last, self._fail_after, self._is_open
        )
        return PlannedWorkflow(workflow, list(self._prepared.values()))

    def _last_task(
        self, outcome: Outcome, task: Any, payload: Any, options: Mapping[str, Any]
    ) -> WorkflowTask:
        if "needs" in options:
            raise InvalidInputError("bad_submission", "needs: a last task needs the whole workflow")
        added = self.task(task, payload, needs=[Need(task=self.id, outcome=outcome)], **options)
        self._last.add(added.id)
        return added


class Workflow(WorkflowBuilder):
    """Tasks that need each other. `Client.workflow` makes one; `submit` creates all of them, or none.

    Attributes:
        id: id that the workflow will have.
        name: its name.
    """

    def __init__(
        self,
        client: Client,
        reader: SubmissionReader,
        name: str,
        fail_after: Failures | None = None,
        *,
        is_open: bool = False,
    ) -> None:
        super().__init__(reader, name, fail_after, is_open=is_open)
        self._client = client

    async def submit(self, *, connection: Any = None) -> WorkflowHandle:
        """Create all tasks, or none.

        Args:
            connection: as in `Client.submit`.

        Raises:
            InvalidInputError: the workflow is empty, or a task that it needs does not exist (`unknown_need`).
            UnavailableError: Postgres cannot be reached; nothing was created.
            OutcomeUnknownError: the tasks may exist.
        """
        handles = await self._client._submit_workflow(self.planned(), self._handlers, connection)
        return WorkflowHandle(self.id, dict(zip(self._prepared, handles, strict=True)), self._client)
