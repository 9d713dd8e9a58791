"""Events of what attempts report, and ask people: none of them changes its status."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, Field

from grns.model.envelope import Instant
from grns.model.field_types import Actor, AgentId, Attempt, Payload, TaskId


class AttemptProgressed(Payload):
    """An attempt has reported its progress: at each ten percent, of a task at most every 30 seconds."""

    task_id: TaskId
    agent_id: AgentId
    attempt: Attempt
    progress_percent: Annotated[float, Field(ge=0, le=100)] | None = None
    current_step: Annotated[str, Field(max_length=255)] | None = None


class OverdueAttempt(Payload):
    """An attempt takes longer than expected. If it reports no progress from now on, it is ended."""

    task_id: TaskId
    agent_id: AgentId
    attempt: Attempt
    estimated_completion_at: Instant


class QuestionAsked(Payload):
    """A handler asks people something, and its task waits for the answer."""

    task_id: TaskId
    question_id: UUID
    kind: Literal["question", "approval"]
    title: str
    asked_of: list[str]
    due_at: Instant | None = None
    digest: str


class QuestionAnswered(Payload):
    """A person has answered a question: its task is queued by another event."""

    task_id: TaskId
    question_id: UUID
    title: str
    digest: str
    answer: dict[str, Any]
    comment: str | None = None
    actor: Actor | None = None


class QuestionLinked(Payload):
    """A link was made with which a person without a key may answer a question, once."""

    task_id: TaskId
    question_id: UUID
    title: str
    until: Instant
    actor: Actor | None = None


class QuestionExpired(Payload):
    """A question was not answered in time."""

    task_id: TaskId
    question_id: UUID
    title: str


REPORTS: dict[str, type[BaseModel]] = {
    "evt.attempt.progressed": AttemptProgressed,
    "evt.attempt.overdue": OverdueAttempt,
    "evt.question.asked": QuestionAsked,
    "evt.question.answered": QuestionAnswered,
    "evt.question.linked": QuestionLinked,
    "evt.question.expired": QuestionExpired,
}
