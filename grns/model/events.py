"""One model per kind: the payloads of commands, events and dead letters.

`schemas/` is generated from these. `v1` never changes meaning; fields may be added.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from grns.errors import RejectedError
from grns.model import subjects
from grns.model.attempt_events import REPORTS
from grns.model.audit_events import CHANGES
from grns.model.envelope import Envelope, Instant, first_problem
from grns.model.field_types import Actor, AgentId, Attempt, ErrorClass, ErrorDetail, Payload, Reason, TaskId
from grns.model.submission import AgentType, Submission, Token


class TaskExecute(Payload):
    """Run a task. The command only names the task: its row in Postgres decides."""

    task_id: TaskId
    target_agent_type: AgentType
    reason: Annotated[str, Field(max_length=64)] = "new_task"


class TaskSubmit(Submission):
    """Create a task and run it."""


class TaskCancel(Payload):
    """Cancel a task."""

    task_id: TaskId
    reason: Reason | None = None


class TaskSignalRequest(Payload):
    """Send a signal to a task, which waits for it or will ask for it. The message's id is the signal's."""

    task_id: TaskId
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
    value: Any = None


class AgentCommand(Payload):
    """A request to the agents of one type: a free JSON object."""

    model_config = ConfigDict(frozen=True, extra="allow")


class MailboxCommand(AgentCommand):
    """A request to one agent: `action` and a free JSON object."""

    action: Annotated[str, Field(min_length=1, max_length=255)]


class TaskQueued(Payload):
    """The task can be claimed. After a redrive: by whom, why, and its previous failure."""

    task_id: TaskId
    task_type: Token
    agent_type: AgentType
    priority: Annotated[int, Field(ge=0, le=3)]
    reason: str
    actor: Actor | None = None
    fingerprint: str | None = None
    operation_id: str | None = None
    why: str | None = None


class TaskWaiting(Payload):
    """The task waits: for its time (`next_attempt_at`), for tasks that it needs, or until it is resumed.

    After a redrive by an operation, a pause or a resume: by whom, why, and its previous failure. If its
    handler asked for it: in which attempt and step.
    """

    task_id: TaskId
    task_type: Token
    agent_type: AgentType
    priority: Annotated[int, Field(ge=0, le=3)]
    waits_for: Literal["time", "tasks", "signal", "limit", "pause"] = "time"
    next_attempt_at: Instant | None = None
    attempt: Attempt | None = None
    step: str | None = None
    reason: str | None = None
    actor: Actor | None = None
    fingerprint: str | None = None
    operation_id: str | None = None
    why: str | None = None


class TaskClaimed(Payload):
    """A worker claimed the task until `lease_until`, or longer if it renews."""

    task_id: TaskId
    agent_id: AgentId
    attempt: Attempt
    lease_until: Instant
    queued_ms: Annotated[int, Field(ge=0)] | None = None


class TaskCompleted(Payload):
    """The task succeeded.

    `result` is what the handler returned, up to 4 KiB of JSON. A larger result is left out and
    `result_omitted` is true: read it from the task.
    """

    task_id: TaskId
    task_type: Token | None = None
    agent_type: AgentType | None = None
    agent_id: AgentId
    attempt: Attempt
    result: Any = None
    result_omitted: bool = False
    result_ref: str
    duration_ms: Annotated[int, Field(ge=0)]


class TaskFailed(Payload):
    """The task failed and is not retryable."""

    task_id: TaskId
    task_type: Token | None = None
    agent_type: AgentType | None = None
    agent_id: AgentId
    attempt: Attempt
    error: ErrorDetail
    error_class: ErrorClass
    fingerprint: str | None = None


class TaskRetryScheduled(Payload):
    """The attempt failed. The next one starts at `next_attempt_at`."""

    task_id: TaskId
    attempt: Attempt
    next_attempt_at: Instant
    backoff_ms: Annotated[int, Field(ge=0)]
    error: ErrorDetail | None = None
    error_class: ErrorClass


class TaskSnoozed(Payload):
    """The handler put the task off. The attempt does not count; the next one starts at `next_attempt_at`."""

    task_id: TaskId
    agent_id: AgentId
    attempt: Attempt
    next_attempt_at: Instant


class TaskLeaseExpired(Payload):
    """The lease expired, or was taken from an attempt that `stalled`. The task is queued again."""

    task_id: TaskId
    agent_id: AgentId
    attempt: Attempt
    lease_until: Instant
    error_class: Literal["stalled"] | None = None


class TaskReleased(Payload):
    """A worker released the task, for example at shutdown."""

    task_id: TaskId
    agent_id: AgentId
    attempt: Attempt
    reason: str


class TaskDead(Payload):
    """The task failed and all attempts are used."""

    task_id: TaskId
    task_type: Token | None = None
    agent_type: AgentType | None = None
    agent_id: AgentId | None = None
    attempt: Attempt
    max_attempts: Annotated[int, Field(ge=1)]
    error: ErrorDetail
    error_class: ErrorClass
    fingerprint: str | None = None


class TaskCancelled(Payload):
    """The task was cancelled before it ended."""

    task_id: TaskId
    task_type: Token | None = None
    agent_type: AgentType | None = None
    agent_id: AgentId | None = None
    attempt: Attempt
    reason: str | None = None
    dependency: TaskId | None = None
    operation_id: str | None = None
    actor: Actor | None = None


class WorkflowEvent(Payload):
    """A workflow was started or changed, all of its tasks have ended, or one of them was redriven after that.

    `succeeded` and `failed` count tasks; the rest of `total` has not ended, or was not to be run.
    `escalation_task_id` is a task that was submitted because too many have failed.
    """

    workflow_id: TaskId
    name: str
    status: Literal["running", "succeeded", "failed", "cancelled"]
    total: Annotated[int, Field(ge=0)]
    succeeded: Annotated[int, Field(ge=0)] = 0
    failed: Annotated[int, Field(ge=0)] = 0
    escalation_task_id: TaskId | None = None
    actor: Actor | None = None
    reason: str | None = None


class WorkflowExtended(Payload):
    """Tasks were added to an open workflow."""

    workflow_id: TaskId
    name: str
    added: Annotated[int, Field(ge=1)]


class AgentEvent(Payload):
    """An event that an agent publishes: a free JSON object."""

    model_config = ConfigDict(frozen=True, extra="allow")


class _DeadLetter(Payload):
    task_type: Token
    payload: dict[str, Any]


class DeadTask(TaskDead, _DeadLetter):
    """A dead task with its failure and payload."""


class FailedTask(TaskFailed, _DeadLetter):
    """A failed task with its failure and payload."""

    max_attempts: Annotated[int, Field(ge=1)] | None = None


class MessageRejected(Payload):
    """A message that could not be accepted.

    `body_base64` has the first 4 KiB of its body, `headers` the first that fit into 4 KiB. The whole
    message is in `grns.dead_letters`.
    """

    reason: str
    detail: str | None = None
    subject: str
    stream: str | None = None
    stream_seq: int | None = None
    delivery_count: int | None = None
    headers: dict[str, str] = Field(default_factory=dict)
    body_base64: str
    body_size: Annotated[int, Field(ge=0)]
    body_sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Truncated(Payload):
    """Replaces a payload that is larger than the broker allows: read it in Postgres."""

    truncated: Literal[True] = True
    ref: str
    task_id: TaskId | None = None
    message_id: UUID | None = None


PAYLOADS: dict[str, type[BaseModel]] = {
    subjects.EXECUTE: TaskExecute,
    subjects.SUBMIT: TaskSubmit,
    subjects.CANCEL: TaskCancel,
    subjects.SIGNAL: TaskSignalRequest,
    "evt.task.queued": TaskQueued,
    "evt.task.waiting": TaskWaiting,
    "evt.task.claimed": TaskClaimed,
    "evt.task.completed": TaskCompleted,
    "evt.task.failed": TaskFailed,
    "evt.task.retry_scheduled": TaskRetryScheduled,
    "evt.task.snoozed": TaskSnoozed,
    "evt.task.lease_expired": TaskLeaseExpired,
    "evt.task.released": TaskReleased,
    "evt.task.dead": TaskDead,
    "evt.task.cancelled": TaskCancelled,
    "evt.workflow.started": WorkflowEvent,
    "evt.workflow.extended": WorkflowExtended,
    "evt.workflow.sealed": WorkflowEvent,
    "evt.workflow.succeeded": WorkflowEvent,
    "evt.workflow.failed": WorkflowEvent,
    "evt.workflow.cancelled": WorkflowEvent,
    "evt.workflow.reopened": WorkflowEvent,
    "evt.workflow.threshold": WorkflowEvent,
    "evt.workflow.paused": WorkflowEvent,
    "evt.workflow.resumed": WorkflowEvent,
    "evt.workflow.cancel_requested": WorkflowEvent,
    "evt.workflow.redriven": WorkflowEvent,
    **CHANGES,
    **REPORTS,
    "dlq.task.dead": DeadTask,
    "dlq.task.failed": FailedTask,
    "dlq.message.rejected": MessageRejected,
}

# Kinds that contain names of users, in the order in which they are tried.
PATTERNS: dict[str, type[BaseModel]] = {
    "cmd.agent.instance.<agent_id>": MailboxCommand,
    "cmd.agent.<agent_type>.<action>": AgentCommand,
    "evt.agent.<agent_type>.<event>": AgentEvent,
}
_COMPILED = [
    (re.compile(re.sub(r"<[a-z_]+>", "[A-Za-z0-9_-]{1,64}", pattern.replace(".", r"\.")) + r"\Z"), model)
    for pattern, model in PATTERNS.items()
]


def model_of(kind: str) -> type[BaseModel]:
    """Return the model of a kind's payload. Raises RejectedError: `unknown_kind`."""
    model = PAYLOADS.get(kind)
    if model is not None:
        return model
    for pattern, candidate in _COMPILED:
        if pattern.match(kind):
            return candidate
    raise RejectedError("unknown_kind", f"the kind {kind[:100]} is not known here")


def read(envelope: Envelope) -> BaseModel:
    """Return the payload as its model. Raises RejectedError: `bad_payload`."""
    model = model_of(envelope.kind)
    try:
        return model.model_validate(envelope.payload)
    except ValidationError as error:
        raise RejectedError("bad_payload", "payload." + first_problem(error)) from error
