"""Events of changes by users: one model per kind. None of them changes the status of a task."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, Field

from grns.model.envelope import Instant
from grns.model.field_types import Actor, ErrorClass, Name, Payload, Reason, TaskId
from grns.model.submission import AgentType, Token
from grns.model.task import TaskStatus


class AuditPayload(Payload):
    """A change by a user or a program. Without an actor, grns made it."""

    actor: Actor | None = None


class TaskChanged(AuditPayload):
    """A task was edited, or what is said of it. Its status and version are unchanged.

    `before` has the values that are others now.
    """

    task_id: TaskId
    task_type: str | None = None
    status: TaskStatus | None = None
    fields: Annotated[
        list[
            Literal[
                "payload", "priority", "next_attempt_at", "route", "title", "description", "tags", "metadata"
            ]
        ],
        Field(min_length=1),
    ]  # fmt: skip
    before: dict[str, Any] | None = None
    priority: Annotated[int, Field(ge=0, le=3)] | None = None
    next_attempt_at: Instant | None = None
    target_agent: str | None = None
    required_capabilities: list[str] | None = None
    reason: Reason | None = None


class SecretRevealed(AuditPayload):
    """The payload of a task was shown with its secrets."""

    task_id: TaskId
    reason: Reason | None = None


class TaskSignaled(AuditPayload):
    """A signal was sent to a task. If it waited for that, it is queued by another event."""

    task_id: TaskId
    name: str
    signal_id: UUID


class MessageSent(AuditPayload):
    """A message was sent to one agent (`to_agent`), to a pool (`to_pool`), or to all agents of the workspace.

    An answer to what a task has asked is for that, too (`to_task`). `agents` is how many got it. `task_id`
    is the task whose attempt sent it.
    """

    message_id: UUID
    type: str
    agents: Annotated[int, Field(ge=1)]
    from_agent: str | None = None
    to_agent: str | None = None
    to_pool: str | None = None
    to_task: str | None = None
    task_id: TaskId | None = None
    correlation_id: str | None = None
    in_reply_to: UUID | None = None
    payload: dict[str, Any]


class TaskDiscarded(AuditPayload):
    """An ended task was discarded. For a dead or failed task, with its failure."""

    task_id: TaskId
    status: Literal["dead", "failed", "cancelled"]
    fingerprint: str | None = None
    reason: Reason | None = None


class TaskRestored(AuditPayload):
    """A task that retention had deleted was restored from an archive, as it was."""

    task_id: TaskId
    status: Literal["succeeded", "failed", "dead", "cancelled"]
    archive: str
    kept_until: Instant
    reason: Reason | None = None


class PoolPaused(AuditPayload):
    """A pool, or one of its task types, was paused."""

    agent_type: AgentType
    task_type: Token | None = None
    until: Instant | None = None
    reason: Reason | None = None


class PoolResumed(AuditPayload):
    """A pool, or one of its task types, was resumed."""

    agent_type: AgentType
    task_type: Token | None = None


class PoolQuotaChanged(AuditPayload):
    """So many tasks of a pool may be queued; None: any number."""

    agent_type: AgentType
    max_queued: Annotated[int, Field(ge=1)] | None = None


class PoolFollowUpsChanged(AuditPayload):
    """The follow-ups of a pool were declared anew; each is `<type> success|failure <pool>/<type>`."""

    agent_type: AgentType
    follow_ups: list[str]


class BudgetChanged(AuditPayload):
    """A budget was created or replaced, more of it was allowed in its present period, or it was deleted.

    Numbers are its own, or what was allowed. None of agent_type: it is of the whole workspace.
    """

    name: Token
    change: Literal["put", "allowed", "deleted"]
    agent_type: AgentType | None = None
    period: Literal["day", "month"] | None = None
    action: Literal["warn", "refuse", "ask"] | None = None
    cost: Annotated[float, Field(gt=0)] | None = None
    tokens: Annotated[int, Field(ge=1)] | None = None


class BudgetExceeded(AuditPayload):
    """A budget has come to be used up. The maxima contain what was allowed more. Costs are US dollars."""

    name: Token
    agent_type: AgentType | None = None
    period: Literal["day", "month"]
    action: Literal["warn", "refuse", "ask"]
    begins_on: date
    used_cost: float
    used_tokens: int
    max_cost: float | None = None
    max_tokens: int | None = None


class KeyCreated(AuditPayload):
    """An API key was created, for one workspace or for all."""

    key_id: Token
    name: Name
    key_workspace: Token | None = None
    scopes: list[str]
    pools: list[AgentType] | None = None
    agents: list[Token] | None = None
    expires_at: Instant | None = None


class TokenKeyRotated(AuditPayload):
    """The secret of claim tokens was rotated. Tokens of the previous secret stay valid."""

    number: Annotated[int, Field(ge=1)]


class KeyRevoked(AuditPayload):
    """An API key was revoked."""

    key_id: Token
    name: Name


class WorkspaceCreated(AuditPayload):
    """A workspace was created."""

    workspace: Token


class FilterSaved(AuditPayload):
    """A filter was saved under a name. It replaces an earlier one of that name."""

    name: Name
    text: str


class FilterDeleted(FilterSaved):
    """A saved filter was deleted."""


class IssueChanged(AuditPayload):
    """An issue was created, seen again after it was resolved, or changed by a user."""

    fingerprint: str
    state: Literal["new", "acknowledged", "ignored", "resolved", "regressed"]
    was: str | None = None
    error_class: ErrorClass
    sample_task_id: TaskId
    note: str | None = None
    owner: str | None = None
    snoozed_until: Instant | None = None


class OperationPayload(AuditPayload):
    """The fields that all events of bulk operations share."""

    operation_id: Token
    action: Annotated[str, Field(max_length=64)]
    state: Annotated[str, Field(max_length=64)]
    reason: Reason | None = None


class OperationCreated(OperationPayload):
    """A bulk operation was created, for all tasks that match its filter."""

    filter: str
    matched: Annotated[int, Field(ge=0)] | None = None


class OperationChanged(OperationPayload):
    """A bulk operation was paused or resumed. The numbers are those so far, if a person did it."""

    was: Annotated[str, Field(max_length=64)]
    moved: Annotated[int, Field(ge=0)] | None = None
    skipped: Annotated[int, Field(ge=0)] | None = None
    failed_again: Annotated[int, Field(ge=0)] | None = None


class OperationEnded(OperationPayload):
    """A bulk operation ended."""

    was: Annotated[str, Field(max_length=64)] | None = None
    moved: Annotated[int, Field(ge=0)]
    skipped: Annotated[int, Field(ge=0)]
    failed_again: Annotated[int, Field(ge=0)]


class DeadLetterPayload(AuditPayload):
    """The fields that all events of rejected messages share."""

    dead_letter_id: UUID
    reason: str
    subject: str


class DeadLetterResent(DeadLetterPayload):
    """A rejected message was sent again."""

    is_fixed: bool = False


class DeadLetterDiscarded(DeadLetterPayload):
    """A rejected message was discarded."""


class DeadLetterExpired(DeadLetterPayload):
    """grns deleted the oldest rejected message of a workspace that kept too many. The message is lost."""

    body_size: Annotated[int, Field(ge=0)]
    body_sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class WebhookPayload(AuditPayload):
    """The fields that all events of webhooks share. The URL is left out, because it may hold a secret."""

    webhook_id: Token
    kinds: list[str]
    is_enabled: bool = True


class WebhookCreated(WebhookPayload):
    """A webhook was created."""


class WebhookChanged(WebhookPayload):
    """A webhook's kinds, URL, state or signing secret changed.

    Without an actor, grns disabled it, and `reason` says why.
    """

    fields: list[Literal["url", "kinds", "description", "is_enabled", "secret"]] = Field(default_factory=list)
    reason: Reason | None = None


class ScheduleChanged(AuditPayload):
    """A schedule was created, changed, paused, resumed or deleted. Without an actor, grns paused it."""

    schedule: Token
    when: str
    task_type: Token
    agent_type: AgentType
    reason: Reason | None = None


class ScheduleDecided(AuditPayload):
    """A time of a schedule was due.

    A task was submitted, or skipped because `task_id` had not ended; or the time, and `missed` with those
    before it, was passed over.
    """

    schedule: Token
    due_at: Instant
    task_type: Token
    agent_type: AgentType
    task_id: TaskId | None = None
    reason: Reason | None = None
    missed: Annotated[int, Field(ge=1)] | None = None


class LimitChanged(AuditPayload):
    """A limit was created, changed, paused, resumed or deleted."""

    limit: Token
    max_tasks: Annotated[int, Field(ge=1)] | None = None
    rate: str | None = None
    burst: Annotated[int, Field(ge=1)] | None = None
    reason: Reason | None = None


class WebhookDeleted(WebhookPayload):
    """A webhook was deleted."""


class WebhookPinged(WebhookPayload):
    """A test event for a webhook."""


class WebhookResent(WebhookPayload):
    """A delivery of a webhook was sent again."""

    message_id: UUID


CHANGES: dict[str, type[BaseModel]] = {
    "evt.task.changed": TaskChanged,
    "evt.secret.revealed": SecretRevealed,
    "evt.task.signaled": TaskSignaled,
    "evt.message.sent": MessageSent,
    "evt.task.discarded": TaskDiscarded,
    "evt.task.restored": TaskRestored,
    "evt.pool.paused": PoolPaused,
    "evt.pool.resumed": PoolResumed,
    "evt.pool.quota_changed": PoolQuotaChanged,
    "evt.pool.follow_ups_changed": PoolFollowUpsChanged,
    "evt.budget.changed": BudgetChanged,
    "evt.budget.exceeded": BudgetExceeded,
    "evt.key.created": KeyCreated,
    "evt.key.revoked": KeyRevoked,
    "evt.token_key.rotated": TokenKeyRotated,
    "evt.workspace.created": WorkspaceCreated,
    "evt.filter.saved": FilterSaved,
    "evt.filter.deleted": FilterDeleted,
    "evt.issue.changed": IssueChanged,
    "evt.operation.created": OperationCreated,
    "evt.operation.changed": OperationChanged,
    "evt.operation.ended": OperationEnded,
    "evt.dead_letter.resent": DeadLetterResent,
    "evt.dead_letter.discarded": DeadLetterDiscarded,
    "evt.dead_letter.expired": DeadLetterExpired,
    "evt.schedule.created": ScheduleChanged,
    "evt.schedule.changed": ScheduleChanged,
    "evt.schedule.paused": ScheduleChanged,
    "evt.schedule.resumed": ScheduleChanged,
    "evt.schedule.deleted": ScheduleChanged,
    "evt.schedule.submitted": ScheduleDecided,
    "evt.schedule.skipped": ScheduleDecided,
    "evt.schedule.missed": ScheduleDecided,
    "evt.limit.created": LimitChanged,
    "evt.limit.changed": LimitChanged,
    "evt.limit.paused": LimitChanged,
    "evt.limit.resumed": LimitChanged,
    "evt.limit.deleted": LimitChanged,
    "evt.webhook.created": WebhookCreated,
    "evt.webhook.changed": WebhookChanged,
    "evt.webhook.deleted": WebhookDeleted,
    "evt.webhook.pinged": WebhookPinged,
    "evt.webhook.resent": WebhookResent,
}
