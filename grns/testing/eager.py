"""A client whose tasks run in place, without servers."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from grns.client.client import Client
from grns.client.handle import TaskHandle
from grns.errors import ConflictError, InvalidInputError, NotFoundError, WaitTimeoutError
from grns.model.blob import BlobRules
from grns.model.json import Limits
from grns.model.outcome import Verb
from grns.model.task import Task, TaskStatus
from grns.outbox.events import LogEvent
from grns.tasks.submit import Prepared, Submitted
from grns.tasks.workflow_plan import PlannedWorkflow
from grns.tasks.workflows import WorkflowState
from grns.telemetry import current
from grns.testing.context import LocalContext, forged, local_runner
from grns.testing.eager_needs import EagerNeeds, Verdict, escalation, follow_ups, new_task
from grns.worker.handler import Handler
from grns.worker.pool import Pool

_SAME = ("task_type", "agent_type", "payload")
_ENDS = {Verb.SUCCEED: TaskStatus.SUCCEEDED, Verb.FAIL: TaskStatus.FAILED, Verb.CANCEL: TaskStatus.CANCELLED}


class _NoServers:
    """Stands for a database: each use of it says that eager mode has none."""

    blob_rules = BlobRules()

    def __getattr__(self, name: str) -> Any:
        raise InvalidInputError("eager", "this needs servers: use the fixture grns_client")


class EagerClient(Client):
    """A client whose tasks run when they are submitted, one attempt after the other, without waiting.

    Tasks with a delay, and tasks by name whose pool it does not have, stay as they are. Attributes:

    - `tasks`: the submitted tasks (`grns.Task`) by id, in order.
    """

    def __init__(self, *pools: Pool, runs: bool = True, connection: Any = None) -> None:
        super().__init__(
            database=_NoServers(),  # type: ignore[arg-type]
            handlers_database=_NoServers(),  # type: ignore[arg-type]
            transport=None,  # type: ignore[arg-type]
            workspace="default",
            payload_limits=BlobRules().document,  # a long payload is kept as blobs, and comes whole
            envelope_limits=Limits(),
            batch_limit=500,
            actor=None,
            emit=lambda _signal: None,
        )
        self.tasks: dict[str, Task] = {}
        self._steps: dict[str, dict[str, Any]] = {}
        self._needs = EagerNeeds(self.tasks)
        self.threads: int | Executor = 1
        self._runs = runs
        self._connection = connection
        self._known = {
            (handler.agent_type, name): handler for pool in pools for name, handler in pool.handlers.items()
        }

    async def submit(self, task: Any, payload: Any = None, **options: Any) -> TaskHandle[Any]:
        """Create a task and run it; arguments and errors are those of `Client.submit`."""
        self._note(task)
        handle: TaskHandle[Any] = await super().submit(task, payload, **options)
        return handle

    async def submit_many(self, submissions: Any, *, connection: Any = None) -> Any:
        """Create tasks and run them."""
        said = list(submissions)
        for one in said:
            self._note(one.get("task") if isinstance(one, dict) else None)
        return await super().submit_many(said, connection=connection)

    async def run_waiting(self) -> None:
        """Run the tasks that are delayed or snoozed, and those that `runs=False` has held."""
        for task_id in list(self.tasks):
            task = self.tasks[task_id]  # as it is now: a failure before may have ended it
            is_due = task.status in (TaskStatus.QUEUED, TaskStatus.WAITING, TaskStatus.RETRY_WAIT)
            if is_due and task.waits_for != "tasks":
                await self._run(task_id)
        await self._settle()

    def assert_submitted(self, task: Handler[Any, Any] | str, payload: Any = None, **fields: Any) -> Task:
        """Return the first task of a type with this payload and these fields of `grns.Task`.

        Raises:
            AssertionError: there is none; the message lists the tasks that were submitted.

        Example:
            client.assert_submitted(fetch_page, Page(url="https://example.org"), priority=1)
        """
        task_type = task if isinstance(task, str) else task.task_type
        wanted = dict(fields)
        for name in fields.keys() - {one.name for one in dataclasses.fields(Task)}:
            raise TypeError(f"a task has no {name!r}: pass fields of grns.Task, such as priority")
        if payload is not None and not isinstance(task, str):
            payload = task.call_signature.payload_text(payload, task.secret_paths)
        if payload is not None:
            wanted["payload"] = payload
        for found in self.tasks.values():
            if found.task_type == task_type and all(
                getattr(found, name) == value for name, value in wanted.items()
            ):
                return found
        rest = "\n".join(f"  {one.task_type} {one.payload}" for one in self.tasks.values()) or "  none"
        raise AssertionError(f"no task {task_type} with {wanted} was submitted; there are:\n{rest}")

    async def get(self, task_id: str) -> Task:
        """Return a task."""
        if task_id not in self.tasks:
            raise NotFoundError(f"no task {task_id} was submitted to this client")
        return self.tasks[task_id]

    async def wait(self, task_id: str, *, timeout: float | timedelta | None = None) -> Task:
        """Return a task that has ended. Raises WaitTimeoutError at once if it has not."""
        task = await self.get(task_id)
        if not task.is_terminal:
            raise WaitTimeoutError(f"task {task_id} is {task.status}: nothing runs it in eager mode")
        return task

    async def cancel_many(self, task_ids: Sequence[str], *, reason: str | None = None) -> dict[str, str]:
        """Cancel tasks that have not run."""
        answers = {}
        for task in (self.tasks[task_id] for task_id in task_ids if task_id in self.tasks):
            answers[task.id] = str(task.status) if task.is_terminal else "cancelled"
            if not task.is_terminal:
                self._cancel(task.id)
        await self._settle()
        return answers

    async def redrive_many(self, task_ids: Sequence[str], *, reason: str | None = None) -> dict[str, str]:
        """Run tasks again that did not succeed."""
        answers = {}
        for task in [self.tasks[task_id] for task_id in task_ids if task_id in self.tasks]:
            ended = task.status in (TaskStatus.FAILED, TaskStatus.DEAD, TaskStatus.CANCELLED)
            answers[task.id] = "redriven" if ended else str(task.status)
            if ended:
                self._needs.open_again(task.id)
                self._needs.ended.pop(task.id, None)
                self._change(
                    task.id, status=TaskStatus.QUEUED, uncounted_attempts=task.attempt, finished_at=None
                )
                await self._run(task.id)
        await self._settle()
        return answers

    async def get_workflow(self, workflow_id: str) -> WorkflowState:
        """Return the state of a workflow."""
        state = self._needs.workflow(workflow_id)
        if state is None:
            raise NotFoundError(f"no workflow {workflow_id} was submitted to this client")
        return state

    async def pause_workflow(self, workflow_id: str, *, reason: str | None = None) -> WorkflowState:
        """Pause a workflow: no task of it that waits for others is queued until it is resumed."""
        await self._running(workflow_id, "pause")
        self._needs.workflows[workflow_id].pause("eager", reason)
        return await self.get_workflow(workflow_id)

    async def resume_workflow(self, workflow_id: str, *, reason: str | None = None) -> WorkflowState:
        """Resume a workflow."""
        await self._running(workflow_id, "resume")
        self._needs.workflows[workflow_id].resume()
        await self._settle()
        return await self.get_workflow(workflow_id)

    async def seal_workflow(self, workflow_id: str) -> WorkflowState:
        """Seal an open workflow, and run its last tasks."""
        await self.get_workflow(workflow_id)
        workflow = self._needs.workflows[workflow_id]
        workflow.sealed_at = workflow.sealed_at or datetime.now(UTC)
        await self._settle()
        return await self.get_workflow(workflow_id)

    async def _running(self, workflow_id: str, verb: str) -> None:
        state = await self.get_workflow(workflow_id)
        if state.status != "running":
            raise ConflictError(f"workflow {workflow_id} has ended as {state.status}: it cannot {verb}")

    async def events(self, task_id: str) -> list[LogEvent]:
        """Raise InvalidInputError: eager mode has no event log."""
        raise _needs_servers("events")

    async def subscribe(self, *_arguments: Any, **_options: Any) -> Any:
        """Raise InvalidInputError: eager mode has no events."""
        raise _needs_servers("subscribe")

    async def _submit(self, prepared: Prepared, connection: Any) -> Submitted:
        (answer,) = await self._submit_part([prepared])
        if isinstance(answer, ConflictError):
            raise answer
        return answer

    async def _submit_workflow(
        self, plan: PlannedWorkflow, tasks: Sequence[Any], connection: Any
    ) -> list[TaskHandle[Any]]:
        for task in tasks:
            self._note(task)
        known = {one.idempotency_key or one.id: one.id for one in self.tasks.values()}
        keys = [(one.submission.idempotency_key or one.id, one.id) for one in plan.tasks]
        self._needs.add_workflow(plan.workflow, [known.setdefault(key, task_id) for key, task_id in keys])
        return self._handles(await self._submit_part(plan.tasks), [{"task": task} for task in tasks])

    async def _submit_part(self, part: Sequence[Prepared]) -> list[Submitted | ConflictError]:
        answers: list[Submitted | ConflictError] = []
        created: list[str] = []
        for prepared in part:
            task = new_task(prepared)
            same = [
                one
                for one in self.tasks.values()
                if one.idempotency_key == task.idempotency_key and task.idempotency_key is not None
            ]
            if not same:
                self.tasks[task.id] = task
                self._needs.add(prepared)
                created.append(task.id)
                answers.append(Submitted(task.id, True, task.trace_id))
            elif all(getattr(same[0], name) == getattr(task, name) for name in _SAME):
                answers.append(Submitted(same[0].id, False, same[0].trace_id))
            else:
                answers.append(ConflictError(f"the idempotency key belongs to task {same[0].id}"))
        for task_id in created if self._runs else ():
            if self.tasks[task_id].status is TaskStatus.QUEUED:
                await self._run(task_id)
        await self._settle()
        return answers

    async def _settle(self) -> None:
        """Run and cancel what waits for tasks, as these have ended, until nothing changes."""
        has_changed = True
        while has_changed:
            has_changed = False
            for task_id, verdict in self._needs.verdicts().items():
                has_changed |= await self._follow(task_id, verdict)
            has_changed |= await self._stop()

    async def _stop(self) -> bool:
        """Stop the workflows in which too many tasks have failed, and submit their escalations."""
        found = self._needs.reached()
        for workflow, limit, state in found:
            if limit.action == "pause" and state.open:
                workflow.pause("grns", "too many of its tasks have failed")
            if limit.action == "cancel" and state.status == "running":
                workflow.cancel_requested_at = datetime.now(UTC)
                workflow.sealed_at = workflow.sealed_at or workflow.cancel_requested_at
                for task in [self.tasks[one] for one in workflow.members]:
                    if not task.is_terminal and task.status is not TaskStatus.RUNNING:
                        self._cancel(task.id)
            if limit.escalation is not None:
                prepared = escalation(limit.escalation, state)
                workflow.escalation_task_id = prepared.id
                await self._submit_part([prepared])
        return bool(found)

    def _cancel(self, task_id: str) -> None:
        self._change(task_id, status=TaskStatus.CANCELLED, finished_at=datetime.now(UTC), waits_for=None)

    async def _follow(self, task_id: str, verdict: Verdict) -> bool:
        was = self._needs.ended.get(task_id)
        if was is None and self.tasks[task_id].waits_for != "tasks":
            return False  # what was submitted meanwhile has settled it
        if verdict in ("dependency", "skipped"):
            if was is None:
                self._needs.ended[task_id] = verdict
                self._cancel(task_id)
            return was is None
        if was is not None:
            del self._needs.ended[task_id]
            self._change(task_id, status=TaskStatus.WAITING, waits_for="tasks", finished_at=None)
        if verdict == "queued":
            is_delayed = self.tasks[task_id].next_attempt_at is not None
            status = TaskStatus.WAITING if is_delayed else TaskStatus.QUEUED
            self._change(task_id, status=status, waits_for="time" if is_delayed else None)
            if self._runs and not is_delayed:
                await self._run(task_id)
        return was is not None or verdict == "queued"

    def _note(self, task: Any) -> None:
        if isinstance(task, Handler):
            self._known[task.agent_type, task.task_type] = task

    async def _run(self, task_id: str) -> None:
        task = self.tasks[task_id]
        handler = self._known.get((task.agent_type, task.task_type))
        if handler is None:
            return
        limit = task.max_attempts or handler.max_attempts or 3
        await self._attempt(handler, task_id, limit)
        while self.tasks[task_id].status is TaskStatus.QUEUED:
            await self._attempt(handler, task_id, limit)
        await self._stop()
        for task, prepared in follow_ups(handler, self.tasks[task_id]):
            self._note(task)
            await self._submit_part([prepared])

    async def _attempt(self, handler: Handler[Any, Any], task_id: str, limit: int) -> None:
        task = self.tasks[task_id]
        claim = forged(task.task_type, json.dumps(task.payload), task.attempt + 1, limit)
        claim.id, claim.trace_id, claim.uncounted_attempts = task.id, task.trace_id, task.uncounted_attempts
        results = self._needs.results(task_id)
        steps = self._steps.setdefault(task_id, {})
        known = len(steps)
        local = LocalContext(
            claim, connection=self._connection, client=self, results=results, steps=steps,
            last_checkpoint=task.checkpoint_data,
        )  # fmt: skip
        self._change(task_id, status=TaskStatus.RUNNING, attempt=claim.attempt, started_at=datetime.now(UTC))
        async with local_runner(handler, local, threads=self.threads) as runner:
            outer = current.attempt()
            current.begin(claim)
            try:
                outcome, _ = await runner.run(claim, local._local_lease)
            finally:
                current.begin(outer)
        self._note_progress(task_id, local)
        if outcome.verb is Verb.SNOOZE:
            due_at = datetime.now(UTC) + timedelta(seconds=outcome.backoff_seconds)
            spared = task.uncounted_attempts + 1
            self._change(
                task_id, status=TaskStatus.RETRY_WAIT, uncounted_attempts=spared, next_attempt_at=due_at
            )
            return
        status = _ENDS.get(outcome.verb)
        if local.finished is not None:
            status, result = TaskStatus.SUCCEEDED, local.result
        else:
            result = json.loads(outcome.result) if outcome.result is not None else None
        spared = task.uncounted_attempts
        if status is None and len(steps) > known:  # an attempt that has recorded a step does not count
            status, spared = TaskStatus.QUEUED, spared + 1
        if status is None:
            status = TaskStatus.DEAD if claim.counted_attempts >= limit else TaskStatus.QUEUED
        error = json.loads(outcome.error) if outcome.error is not None else task.last_error
        ended_at = datetime.now(UTC) if status is not TaskStatus.QUEUED else None
        self._change(
            task_id, status=status, result=result, last_error=error, finished_at=ended_at,
            uncounted_attempts=spared,
        )  # fmt: skip

    def _note_progress(self, task_id: str, local: LocalContext) -> None:
        said = local.reported
        checkpoint = local.last_checkpoint if said.checkpoint is None else json.loads(said.checkpoint)
        change = {"progress_percent": said.percent, "current_step": said.step, "checkpoint_data": checkpoint}
        self._change(task_id, **change)

    def _change(self, task_id: str, **changes: Any) -> None:
        self.tasks[task_id] = replace(self.tasks[task_id], updated_at=datetime.now(UTC), **changes)


@contextmanager
def eager(*pools: Pool, runs: bool = True, connection: Any = None) -> Iterator[EagerClient]:
    """Return a client whose tasks run in place: what Celery calls `task_always_eager`.

    Args:
        pools: pools whose tasks it runs when they are submitted by name; a handler needs none.
        runs: False to record tasks only.
        connection: asyncpg connection for `ctx.transaction()`.

    Example:
        with grns.testing.eager() as client:
            await place_order(client, url="https://example.org")
            client.assert_submitted(fetch_page, Page(url="https://example.org"))
    """
    yield EagerClient(*pools, runs=runs, connection=connection)


def _needs_servers(name: str) -> InvalidInputError:
    return InvalidInputError("eager_mode", f"{name} needs servers: use the fixture grns_client")
