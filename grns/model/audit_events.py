"""Events of what people have changed: one model per kind. None of them moves a task."""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

from pydantic import BaseModel, Field

from grns.model.envelope import Instant
from grns.model.field_types import Actor, ErrorClass, Name, Payload, Reason, TaskId
from grns.model.submission import AgentType, Token


class AuditPayload(Payload):
    """What somebody has changed through one of the doors; without an actor it was grns itself."""

    actor: Actor | None = None


class TaskChanged(AuditPayload):
    """A task that does not run was edited: it is where it was, at the same version."""

    task_id: TaskId
    fields: Annotated[list[Literal["payload", "priority", "next_attempt_at"]], Field(min_length=1)]
    priority: Annotated[int, Field(ge=0, le=3)] | None = None
    next_attempt_at: Instant | None = None
    reason: Reason | None = None


class TaskDiscarded(AuditPayload):
    """Nobody will open this ended task again. Where it was dead or failed: of what."""

    task_id: TaskId
    status: Literal["dead", "failed", "cancelled"]
    fingerprint: str | None = None
    reason: Reason | None = None


class PoolPaused(AuditPayload):
    """Nothing is claimed for an agent type, or for one of its task types."""

    agent_type: AgentType
    task_type: Token | None = None
    until: Instant | None = None
    reason: Reason | None = None


class PoolResumed(AuditPayload):
    """It is claimed again what was paused."""

    agent_type: AgentType
    task_type: Token | None = None


class KeyCreated(AuditPayload):
    """There is a new API key, of one workspace or of all."""

    key_id: Token
    name: Name
    key_workspace: Token | None = None
    scopes: list[str]
    pools: list[AgentType] | None = None
    expires_at: Instant | None = None


class TokenKeyRotated(AuditPayload):
    """Claim tokens are signed with a new secret; those of the previous one stay valid."""

    number: Annotated[int, Field(ge=1)]


class KeyRevoked(AuditPayload):
    """An API key is worth nothing any more."""

    key_id: Token
    name: Name


class WorkspaceCreated(AuditPayload):
    """There is a new workspace."""

    workspace: Token


class FilterSaved(AuditPayload):
    """A filter was saved under a name, maybe in the place of another one."""

    name: Name
    text: str


class FilterDeleted(FilterSaved):
    """A saved filter was forgotten."""


class IssueChanged(AuditPayload):
    """An issue is new, or it is back, or somebody has said something of it."""

    fingerprint: str
    state: Literal["new", "acknowledged", "ignored", "resolved", "regressed"]
    was: str | None = None
    error_class: ErrorClass
    sample_task_id: TaskId
    note: str | None = None
    owner: str | None = None
    snoozed_until: Instant | None = None


class OperationPayload(AuditPayload):
    """What events of bulk operations share: which one it is, what it does, and why."""

    operation_id: Token
    action: Annotated[str, Field(max_length=64)]
    state: Annotated[str, Field(max_length=64)]
    reason: Reason | None = None


class OperationCreated(OperationPayload):
    """A bulk operation is to be done, on all tasks that match its filter."""

    filter: str
    matched: Annotated[int, Field(ge=0)] | None = None


class OperationChanged(OperationPayload):
    """A bulk operation was paused, or goes on."""

    was: Annotated[str, Field(max_length=64)]


class OperationEnded(OperationPayload):
    """A bulk operation is over."""

    moved: Annotated[int, Field(ge=0)]
    skipped: Annotated[int, Field(ge=0)]
    failed_again: Annotated[int, Field(ge=0)]


class DeadLetterPayload(AuditPayload):
    """What events of messages that belong to no task share: which one it is, and why it was refused."""

    dead_letter_id: UUID
    reason: str
    subject: str


class LetterResent(DeadLetterPayload):
    """A message was sent again."""

    is_fixed: bool = False


class LetterDiscarded(DeadLetterPayload):
    """Nobody will send a message again."""


class LetterExpired(DeadLetterPayload):
    """grns deleted the oldest rejected message of a workspace that kept too many. The message is lost."""

    body_size: Annotated[int, Field(ge=0)]
    body_sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class WebhookPayload(AuditPayload):
    """What events of webhooks share. The URL is not told: it may hold a secret."""

    webhook_id: Token
    kinds: list[str]
    is_enabled: bool = True


class WebhookCreated(WebhookPayload):
    """Events will be sent to a URL."""


class WebhookChanged(WebhookPayload):
    """It has changed which events are sent, where to, whether any are, or what with they are signed.

    Without an actor grns itself has disabled it, and `reason` says why.
    """

    fields: list[Literal["url", "kinds", "description", "is_enabled", "secret"]] = Field(default_factory=list)
    reason: Reason | None = None


class WebhookDeleted(WebhookPayload):
    """No events are sent there any more."""


class WebhookPinged(WebhookPayload):
    """Somebody wants to see whether it works: it is sent this."""


class WebhookResent(WebhookPayload):
    """Somebody has had it told once more of an event."""

    message_id: UUID


CHANGES: dict[str, type[BaseModel]] = {
    "evt.task.changed": TaskChanged,
    "evt.task.discarded": TaskDiscarded,
    "evt.pool.paused": PoolPaused,
    "evt.pool.resumed": PoolResumed,
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
    "evt.dead_letter.resent": LetterResent,
    "evt.dead_letter.discarded": LetterDiscarded,
    "evt.dead_letter.expired": LetterExpired,
    "evt.webhook.created": WebhookCreated,
    "evt.webhook.changed": WebhookChanged,
    "evt.webhook.deleted": WebhookDeleted,
    "evt.webhook.pinged": WebhookPinged,
    "evt.webhook.resent": WebhookResent,
}
