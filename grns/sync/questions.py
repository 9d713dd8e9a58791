"""Questions to people, of synchronous applications."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from grns.model.question import QuestionSummary, TaskQuestion
from grns.postgres.paging import Page
from grns.tasks.questions import QuestionLink

if TYPE_CHECKING:
    from grns.sync.client import SyncClient


@dataclass(frozen=True, slots=True)
class SyncQuestions:
    """List and answer what handlers ask people: the methods of `grns.Client.questions`, without `await`."""

    _client: SyncClient

    def list(self, **options: Any) -> Page[QuestionSummary]:
        """Return a page of questions; options are those of `Questions.list`."""
        return self._client.ask(lambda client: client.questions.list(**options))

    def get(self, question_id: UUID, *, sees: bool = False) -> TaskQuestion:
        """Return a question. Raises NotFoundError if there is none."""
        return self._client.ask(lambda client: client.questions.get(question_id, sees=sees))

    def answer(
        self, question_id: UUID, answer: Any, *, digest: str, comment: str | None = None
    ) -> TaskQuestion:
        """Answer a question: see `Questions.answer`."""
        return self._client.ask(
            lambda client: client.questions.answer(question_id, answer, digest=digest, comment=comment)
        )

    def link(self, question_id: UUID, *, seconds: float) -> QuestionLink:
        """Let the holder of a new secret answer a question, once: see `Questions.link`."""
        return self._client.ask(lambda client: client.questions.link(question_id, seconds=seconds))
