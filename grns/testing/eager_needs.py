"""What tasks of an eager client need: the rules of the follower, without a database."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from grns.errors import ConflictError, NotFoundError
from grns.model.json import ANY_SIZE, Limits
from grns.model.submission import Escalation, Failures, Need, Outcome, submission
from grns.model.task import Task, TaskStatus
from grns.tasks.submit import NewWorkflow, Prepared, prepare
from grns.tasks.workflows import WorkflowState, WorkflowStatus
from grns.worker.handler import Handler

Verdict = Literal["waiting", "queued", "dependency", "skipped"]


@dataclass(slots=True)
class EagerWorkflow:
    """A workflow of an eager client. `stopped_at` is when too many of its tasks had failed."""

    new: NewWorkflow
    members: list[str]
    created_at: datetime
    stopped_at: datetime | None = None
    sealed_at: datetime | None = None
    paused_at: datetime | None = None
    paused_by: str | None = None
    pause_reason: str | None = None
    cancel_requested_at: datetime | None = None
    escalation_task_id: str | None = None

    def pause(self, by: str, reason: str | None) -> None:
        """Let no task that waits for others be queued; one that is paused stays as it is."""
        if self.paused_at is None:
            self.paused_at, self.paused_by, self.pause_reason = datetime.now(UTC), by, reason

    def resume(self) -> None:
        """Let tasks be queued again."""
        self.paused_at = self.paused_by = self.pause_reason = None


@dataclass(slots=True)
class EagerNeeds:
    """The needs of tasks, and the workflows. `ended` has the tasks that were cancelled for their needs."""

    tasks: Mapping[str, Task]
    ended: dict[str, Verdict] = field(default_factory=dict)
    _needs: dict[str, tuple[tuple[Need, ...], int]] = field(default_factory=dict)
    workflows: dict[str, EagerWorkflow] = field(default_factory=dict)

    def add(self, prepared: Prepared) -> None:
        """Note what a task needs."""
        said = prepared.submission
        if said.needs:
            self._needs[prepared.id] = said.needs, said.required or len(said.needs)

    def add_workflow(self, workflow: NewWorkflow, ids: Iterable[str]) -> None:
        """Note the tasks of a workflow, or those that are added to one."""
        members = list(dict.fromkeys(one for one in ids if one not in workflow.last))
        if not workflow.extends:
            now = datetime.now(UTC)
            sealed_at = None if workflow.is_open else now
            self.workflows[workflow.id] = EagerWorkflow(workflow, members, now, sealed_at=sealed_at)
            return
        found = self.workflows.get(workflow.id)
        if found is None:
            raise NotFoundError(f"no workflow {workflow.id} was submitted to this client")
        if found.sealed_at is not None:
            raise ConflictError(f"workflow {workflow.id} is sealed: it takes no more tasks")
        found.members += [one for one in members if one not in found.members]

    def verdicts(self) -> dict[str, Verdict]:
        """Return what becomes of each task that waits for others, or was cancelled for them."""
        held = {
            task_id
            for found in self.workflows.values()
            if found.paused_at is not None
            for task_id in found.members
        }
        verdicts = {
            task_id: self._verdict(*wanted)
            for task_id, wanted in self._needs.items()
            if task_id in self.ended or self.tasks[task_id].waits_for == "tasks"
        }
        return {
            task_id: "waiting" if verdict == "queued" and task_id in held else verdict
            for task_id, verdict in verdicts.items()
        }

    def reached(self) -> list[tuple[EagerWorkflow, Failures, WorkflowState]]:
        """Return the workflows in which too many tasks have failed, each once."""
        found = []
        for workflow_id, one in self.workflows.items():
            limit = one.new.fail_after
            if limit is None or one.stopped_at is not None:
                continue
            state = self._state(workflow_id, one)
            ended = state.succeeded + state.failed
            if limit.count is not None:
                is_reached = state.failed >= limit.count
            else:
                is_reached = ended >= limit.of_at_least and state.failed >= (limit.share or 0) * ended
            if is_reached:
                one.stopped_at = datetime.now(UTC)
                found.append((one, limit, state))
        return found

    def open_again(self, task_id: str) -> None:
        """Let a workflow that has ended go on, where one of its tasks is redriven."""
        for workflow_id, one in self.workflows.items():
            if task_id in one.members and self._state(workflow_id, one).status != "running":
                one.cancel_requested_at = None
                one.resume()

    def results(self, task_id: str) -> dict[str, object]:
        """Return the results of what a task needs, by name."""
        needs, _ = self._needs.get(task_id, ((), 0))
        return {
            self._name(one): self.tasks[one.task].result
            for one in needs
            if one.task in self.tasks and self.tasks[one.task].status is TaskStatus.SUCCEEDED
        }

    def workflow(self, workflow_id: str) -> WorkflowState | None:
        """Return the state of a workflow."""
        found = self.workflows.get(workflow_id)
        return None if found is None else self._state(workflow_id, found)

    def _state(self, workflow_id: str, one: EagerWorkflow) -> WorkflowState:
        ends = [self._end(member) for member in one.members]
        failed = sum(_is_broken("success", end) for end in ends)
        is_open = None in ends or one.sealed_at is None
        trace_id = self.tasks[one.members[0]].trace_id if one.members else ""
        broken: WorkflowStatus = "failed" if one.cancel_requested_at is None else "cancelled"
        return WorkflowState(
            id=workflow_id, workspace="default", name=one.new.name,
            status="running" if is_open else broken if failed else "succeeded",
            total=len(ends), open=ends.count(None), succeeded=ends.count("succeeded"), failed=failed,
            skipped=ends.count("skipped"), trace_id=trace_id,
            created_at=one.created_at, created_by=None, sealed_at=one.sealed_at,
            ended_at=None if is_open else datetime.now(UTC), version=1 if is_open else 2,
            paused_at=one.paused_at if is_open else None, paused_by=one.paused_by if is_open else None,
            pause_reason=one.pause_reason if is_open else None, cancel_requested_at=one.cancel_requested_at,
            escalation_task_id=one.escalation_task_id,
        )  # fmt: skip

    def _verdict(self, needs: tuple[Need, ...], required: int) -> Verdict:
        ends = [self._end(one.task) for one in needs]
        met = sum(_is_met(one.outcome, end) for one, end in zip(needs, ends, strict=True))
        if met >= required:
            return "queued"
        if met + ends.count(None) >= required:
            return "waiting"
        is_broken = any(_is_broken(one.outcome, end) for one, end in zip(needs, ends, strict=True))
        return "dependency" if is_broken else "skipped"

    def _end(self, needed: str) -> str | None:
        if (state := self.workflow(needed)) is not None:
            return None if state.status == "running" else state.status
        if needed not in self.tasks:
            return "deleted"
        task = self.tasks[needed]
        if not task.is_terminal:
            return None
        return "skipped" if self.ended.get(needed) == "skipped" else str(task.status)

    def _name(self, need: Need) -> str:
        if need.name is not None:
            return need.name
        names = (found.new.names.get(need.task) for found in self.workflows.values())
        return next((name for name in names if name is not None), need.task)


def escalation(task: Escalation, state: WorkflowState) -> Prepared:
    """Return the task of an escalation, with what the follower adds to its payload."""
    facts = {"workflow_id": state.id, "workflow": state.name, "total": state.total, "failed": state.failed}
    reason = "too many tasks of the workflow have failed"
    fields = task.model_dump() | {"payload": {**task.payload, **facts, "reason": reason}}
    return prepare(submission(**fields, trace_id=state.trace_id), Limits())


def follow_ups(handler: Handler[Any, Any], ended: Task) -> list[tuple[Any, Prepared]]:
    """Return the follow-ups of an ended task, with what grns.submit_follow_ups adds to their payloads."""
    facts: dict[str, Any] = {"task_id": ended.id, "task_type": ended.task_type, "status": str(ended.status)}
    if ended.status is TaskStatus.SUCCEEDED:
        due = handler.follow_ups.get("success", ())
        facts["result"] = ended.result
    elif ended.status in (TaskStatus.FAILED, TaskStatus.DEAD):
        due = handler.follow_ups.get("failure", ())
        error = ended.last_error or {}
        facts |= {
            "payload": ended.payload,
            "error": {name: error.get(name) for name in ("class", "message")},
        }
    else:
        return []
    found = []
    for one in due:
        said = one.of(handler.agent_type)
        fields = said.model_dump() | {"payload": {**said.payload, **facts}}
        found.append((one.task, prepare(submission(**fields, trace_id=ended.trace_id), ANY_SIZE)))
    return found


def new_task(prepared: Prepared) -> Task:
    """Return a task as it is when it has been submitted."""
    said, now = prepared.submission, datetime.now(UTC)
    return Task(
        id=prepared.id,
        workspace=said.workspace,
        task_type=said.task_type,
        agent_type=said.agent_type,
        priority=said.priority,
        status=TaskStatus.WAITING if said.is_delayed else TaskStatus.QUEUED,
        attempt=0,
        max_attempts=said.max_attempts,
        uncounted_attempts=0,
        version=1,
        trace_id=prepared.trace_id,
        created_at=now,
        updated_at=now,
        payload=json.loads(prepared.payload),
        idempotency_key=said.idempotency_key,
        causation_id=said.causation_id,
        **said.label_values(),
        next_attempt_at=said.run_at
        or (now + timedelta(seconds=said.delay_seconds) if said.delay_seconds else None),
        waits_for="tasks" if said.needs else "time" if said.is_delayed else None,
    )


def _is_met(outcome: Outcome, end: str | None) -> bool:
    if outcome == "success":
        return end == "succeeded"
    if outcome == "failure":
        return end in ("failed", "dead", "cancelled")
    return end is not None


def _is_broken(outcome: Outcome, end: str | None) -> bool:
    return end == "deleted" or (outcome == "success" and end in ("failed", "dead", "cancelled"))
