"""What tasks of an eager client need: the rules of the follower, without a database."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from grns.model.submission import Need, Outcome
from grns.model.task import Task, TaskStatus
from grns.tasks.submit import NewWorkflow, Prepared
from grns.tasks.workflows import WorkflowState

Verdict = Literal["waiting", "queued", "dependency", "skipped"]


@dataclass(slots=True)
class EagerNeeds:
    """The needs of tasks, and the workflows. `ended` has the tasks that were cancelled for their needs."""

    tasks: Mapping[str, Task]
    ended: dict[str, Verdict] = field(default_factory=dict)
    _needs: dict[str, tuple[tuple[Need, ...], int]] = field(default_factory=dict)
    _workflows: dict[str, tuple[NewWorkflow, list[str], datetime]] = field(default_factory=dict)

    def add(self, prepared: Prepared) -> None:
        """Note what a task needs."""
        said = prepared.submission
        if said.needs:
            self._needs[prepared.id] = said.needs, said.required or len(said.needs)

    def add_workflow(self, workflow: NewWorkflow, batch: Iterable[Prepared]) -> None:
        """Note the tasks of a workflow."""
        members = [one.id for one in batch if one.id not in workflow.last]
        self._workflows[workflow.id] = workflow, members, datetime.now(UTC)

    def verdicts(self) -> dict[str, Verdict]:
        """Return what becomes of each task that waits for others, or was cancelled for them."""
        return {
            task_id: self._verdict(*wanted)
            for task_id, wanted in self._needs.items()
            if task_id in self.ended or self.tasks[task_id].waits_for == "tasks"
        }

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
        if workflow_id not in self._workflows:
            return None
        workflow, members, at = self._workflows[workflow_id]
        ends = [self._end(one) for one in members]
        failed = sum(_is_broken("success", end) for end in ends)
        is_open = None in ends
        return WorkflowState(
            id=workflow_id, workspace="default", name=workflow.name,
            status="running" if is_open else "failed" if failed else "succeeded",
            total=len(ends), open=ends.count(None), succeeded=ends.count("succeeded"), failed=failed,
            skipped=ends.count("skipped"), trace_id=self.tasks[members[0]].trace_id, created_at=at,
            created_by=None,
            ended_at=None if is_open else datetime.now(UTC), version=1 if is_open else 2,
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
        names = (workflow.names.get(need.task) for workflow, _, _ in self._workflows.values())
        return next((name for name in names if name is not None), need.task)


def _is_met(outcome: Outcome, end: str | None) -> bool:
    if outcome == "success":
        return end == "succeeded"
    if outcome == "failure":
        return end in ("failed", "dead", "cancelled")
    return end is not None


def _is_broken(outcome: Outcome, end: str | None) -> bool:
    return end == "deleted" or (outcome == "success" and end in ("failed", "dead", "cancelled"))
