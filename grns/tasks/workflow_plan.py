"""A workflow as a document: its tasks, by names, in any order."""

from __future__ import annotations

import heapq
import time
from collections.abc import Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from random import getrandbits
from typing import Annotated, Any, TypeVar, overload

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from grns.errors import InvalidInputError
from grns.model.envelope import first_problem
from grns.model.json import Limits, dumps
from grns.model.labels import Labels
from grns.model.submission import (
    MOST_NEEDS,
    AgentType,
    Capabilities,
    DelaySeconds,
    EstimatedMinutes,
    Failures,
    MaxAttempts,
    Need,
    Outcome,
    Priority,
    RunAt,
    Token,
    submission,
)
from grns.model.task import new_id
from grns.tasks.submit import NewWorkflow, Prepared, new_trace_id, numbered_after, prepare

MOST_TASKS = 10_000

Name = Annotated[str, Field(pattern=r"^[ -~]{1,255}$")]


class StepNeed(BaseModel):
    """A task that another one needs: by its name in the document, or by the id of a task that exists."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    task: Name
    outcome: Outcome = "success"
    name: Name | None = None


class WorkflowStep(Labels):
    """A task of a workflow. Its `name` defaults to its type; `needs` are names, or objects with an outcome.

    With `on`, it is a last task: it runs when all others have ended, if all have succeeded (`success`), one
    has not (`failure`), or either way (`end`).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    task_type: Token
    name: Name | None = None
    payload: dict[str, Any] = Field(default_factory=dict)
    agent_type: AgentType = "worker"
    priority: Priority = 2
    delay_seconds: DelaySeconds = 0.0
    run_at: RunAt | None = None
    max_attempts: MaxAttempts | None = None
    estimated_duration_minutes: EstimatedMinutes | None = None
    target_agent: Token | None = None
    required_capabilities: Capabilities = ()
    needs: Annotated[tuple[StepNeed | Name, ...], Field(max_length=MOST_NEEDS)] = ()
    required: Annotated[int, Field(ge=1, strict=True)] | None = None
    on: Outcome | None = None


class WorkflowPlan(BaseModel):
    """A workflow to create, whose tasks may stand in any order.

    Example:
        {"name": "report", "tasks": [
            {"name": "a", "task_type": "fetch_page", "payload": {"url": "https://example.org/a"}},
            {"name": "b", "task_type": "fetch_page", "payload": {"url": "https://example.org/b"}},
            {"task_type": "write_report", "needs": ["a", {"task": "b", "outcome": "end"}]}]}
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Name
    fail_after: Failures | None = None
    is_open: bool = False
    tasks: Annotated[list[WorkflowStep], Field(max_length=MOST_TASKS)]

    @model_validator(mode="after")
    def _has_tasks(self) -> WorkflowPlan:
        if not self.tasks and not self.is_open:
            raise ValueError("a workflow has at least one task, unless it is open")
        return self


class WorkflowExtension(BaseModel):
    """Tasks to add to an open workflow, in any order. They may need tasks that exist by their ids."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tasks: Annotated[list[WorkflowStep], Field(min_length=1, max_length=MOST_TASKS)]


PlanT = TypeVar("PlanT", WorkflowPlan, WorkflowExtension)


@dataclass(frozen=True, slots=True)
class PlannedWorkflow:
    """A workflow that is checked, and its tasks, each after those that it needs."""

    workflow: NewWorkflow
    tasks: list[Prepared]


@overload
def read_plan(fields: Any) -> WorkflowPlan: ...
@overload
def read_plan(fields: Any, model: type[PlanT]) -> PlanT: ...


def read_plan(fields: Any, model: type[Any] = WorkflowPlan) -> Any:
    """Return a plan. Raises InvalidInputError: `bad_submission` names the wrong field."""
    if not isinstance(fields, dict):
        raise InvalidInputError("bad_submission", "a workflow is a JSON object with a name and tasks")
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        raise InvalidInputError("bad_submission", first_problem(error)) from error


def planned(plan: WorkflowPlan, *, workspace: str, trace_id: str | None, limits: Limits) -> PlannedWorkflow:
    """Check a plan, and give its tasks their ids.

    Raises:
        InvalidInputError: `dependency_cycle` names the tasks that need each other; `bad_submission` says what
            else is wrong.
    """
    workflow_id = new_workflow_id()
    check_escalation(plan.fail_after, limits)
    tasks, names, last = _prepared(plan.tasks, workflow_id, workspace, trace_id or new_trace_id(), limits)
    workflow = NewWorkflow(workflow_id, workspace, plan.name, names, last, plan.fail_after, plan.is_open)
    return PlannedWorkflow(workflow, tasks)


def planned_extension(
    extension: WorkflowExtension, workflow_id: str, *, workspace: str, trace_id: str | None, limits: Limits
) -> PlannedWorkflow:
    """Check tasks that are added to an open workflow. Errors are those of `planned`."""
    if any(step.on is not None for step in extension.tasks):
        raise InvalidInputError("bad_submission", "on: last tasks are of a new workflow")
    tasks, names, _ = _prepared(extension.tasks, workflow_id, workspace, trace_id, limits)
    return PlannedWorkflow(NewWorkflow(workflow_id, workspace, "", names, extends=True), tasks)


def _prepared(
    steps: Sequence[WorkflowStep], workflow_id: str, workspace: str, trace_id: str | None, limits: Limits
) -> tuple[list[Prepared], dict[str, str], set[str]]:
    """Return the tasks in order, their names by id, and the ids of last ones."""
    named = _by_name(steps)
    tasks: dict[str, Prepared] = {}
    latest = ""
    for name in _in_order(named):
        step = named[name]
        needs = [_need(one, tasks) for one in step.needs]
        if step.on is not None:
            needs.append(Need(task=workflow_id, outcome=step.on))
        said = step.model_dump(exclude={"name", "needs", "on", "payload"})
        wanted = submission(**said, payload=step.payload, needs=needs, workspace=workspace, trace_id=trace_id)
        tasks[name] = numbered_after(prepare(wanted, limits), latest)
        latest = tasks[name].id
    names = {prepared.id: name for name, prepared in tasks.items()}
    last = {tasks[name].id for name, step in named.items() if step.on is not None}
    return list(tasks.values()), names, last


def check_escalation(fail_after: Failures | None, limits: Limits) -> None:
    """Check that the payload of an escalation can be stored. Raises InvalidInputError if it cannot."""
    if fail_after is not None and fail_after.escalation is not None:
        try:
            dumps(fail_after.escalation.payload, limits)
        except InvalidInputError as error:
            raise InvalidInputError(error.code, f"fail_after: the payload of its task: {error}") from error


def new_workflow_id() -> str:
    """Return the id of a workflow: as that of a task, but for its first letters."""
    return f"wf{new_id(time.time_ns() // 1_000_000, getrandbits(80).to_bytes(10, 'big'))[2:]}"


def _by_name(steps: Sequence[WorkflowStep]) -> dict[str, WorkflowStep]:
    named = {step.name or step.task_type: step for step in steps}
    if len(named) < len(steps):
        raise InvalidInputError("bad_submission", "tasks: two have the same name; give each its own `name`")
    return named


def _in_order(steps: dict[str, WorkflowStep]) -> list[str]:
    """Return the names in the order of the document, but each after those that it needs."""
    graph = {
        name: [need for one in step.needs if (need := _target(one)) in steps] for name, step in steps.items()
    }
    sorter = TopologicalSorter(graph)
    try:
        sorter.prepare()
    except CycleError as error:
        raise InvalidInputError(
            "dependency_cycle", f"these tasks need each other: {' -> '.join(reversed(error.args[1]))}"
        ) from error
    names, places = list(steps), {name: place for place, name in enumerate(steps)}
    ready = [places[name] for name in sorter.get_ready()]
    heapq.heapify(ready)
    order = []
    while ready:
        order.append(names[heapq.heappop(ready)])
        sorter.done(order[-1])
        for name in sorter.get_ready():
            heapq.heappush(ready, places[name])
    return order


def _need(one: StepNeed | str, tasks: dict[str, Prepared]) -> Need:
    said = one if isinstance(one, StepNeed) else StepNeed(task=one)
    known = tasks.get(said.task)
    try:
        return Need(task=said.task if known is None else known.id, outcome=said.outcome, name=said.name)
    except ValidationError as error:
        raise InvalidInputError(
            "unknown_need", f"there is no task {said.task!r}, neither in this document nor by that id"
        ) from error


def _target(one: StepNeed | str) -> str:
    return one.task if isinstance(one, StepNeed) else one
