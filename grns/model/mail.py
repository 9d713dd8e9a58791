"""Mail between agents."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Mail:
    """A message to an agent.

    Attributes:
        seq: number of the message; those of an agent are handed out in its order.
        id: id of the message: sent twice is sent once, and a reply names it.
        to_agent: the agent; None: it answers a task.
        to_task: the task that it answers, which gets it as a signal; None: it is for an agent.
        from_agent: who sends it, as the sender says.
        from_task, from_attempt: the attempt that sent it; None if none did.
        type: what it is, such as `review_request`.
        correlation_id: what its conversation is about, such as the id of a task.
        in_reply_to: id of the message that it answers.
        payload: a JSON object of at most 4,096 bytes. A larger one is kept as a blob, and this is the
            reference: `{"$blob": "sha256-…", "size": 5120, "type": "application/json", "is_document": true}`.
        created_at, expires_at: when it was sent, and until when it is handed out.
        delivered_at, deliveries: when it was handed out first, and how often.
        acked_at: when it was acknowledged; None: it is handed out again.
    """

    seq: int
    id: UUID
    to_agent: str | None
    to_task: str | None
    from_agent: str | None
    from_task: str | None
    from_attempt: int | None
    type: str
    correlation_id: str | None
    in_reply_to: UUID | None
    payload: dict[str, Any]
    created_at: datetime
    expires_at: datetime
    delivered_at: datetime | None
    deliveries: int
    acked_at: datetime | None


@dataclass(frozen=True, slots=True)
class Sent:
    """The id of a message that was sent."""

    message_id: UUID


@dataclass(frozen=True, slots=True)
class AgentReply:
    """The answer of an agent to what a task has asked.

    Attributes:
        message_id: id of the message.
        type: what it is, such as `review_result`.
        from_agent: who has answered, as the sender says.
        payload: a JSON object.
    """

    message_id: str
    type: str
    from_agent: str | None
    payload: dict[str, Any]
