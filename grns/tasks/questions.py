"""Questions to people: list, read and answer them."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from grns.errors import ConflictError, InvalidInputError, NotFoundError, PermissionDeniedError
from grns.model.form import answer_of
from grns.model.json import Limits, dumps, loads_stored
from grns.model.question import QuestionSummary, TaskQuestion, is_text
from grns.nats import JetStream
from grns.postgres.database import Database, Row, Session, build
from grns.postgres.paging import Page, bad_cursor, cursor, instant, page_of, parts
from grns.tasks.announce import QueuedTask, announce_queued

STATES = ("open", "answered", "expired", "ended")
LONGEST_COMMENT = 4000
LONGEST_LINK_SECONDS = 30 * 86_400.0
_LAST = datetime(9999, 1, 1, tzinfo=UTC)
_ANSWER = Limits(document_bytes=64 * 1024)
_SECRET_BYTES = 32
_REFUSALS = {
    "taken": "it has been answered already",
    "expired": "its time is over",
    "changed": "what is asked has changed since: look at it again",
    "unlinked": "its link was used, is too old, or there is a newer one",
}


@dataclass(frozen=True, slots=True)
class QuestionLink:
    """The secret with which one person may answer a question, once, until then."""

    secret: str
    until: datetime


class Questions:
    """Questions of one workspace: `client.questions`."""

    def __init__(
        self, database: Database | Session, transport: JetStream, workspace: str, actor: str | None
    ) -> None:
        self._database = database
        self._transport = transport
        self._workspace = workspace
        self._actor = actor

    async def list(
        self,
        *,
        state: str | None = "open",
        asked_of: str | None = None,
        task_id: str | None = None,
        limit: int = 50,
        after: str | None = None,
    ) -> Page[QuestionSummary]:
        """Return a page of questions, the latest first.

        Args:
            state: `open`, `answered`, `expired` or `ended` (its task has); None for all.
            asked_of: only what asks this one, such as `role:finance`.
            task_id: only what this task asks.
            limit: 1 to 1,000.
            after: `next_cursor` of the page before.

        Raises:
            InvalidInputError: an argument is invalid.

        Example:
            for question in (await client.questions.list(asked_of="role:finance")).rows:
                print(question.title, question.due_at)
        """
        if state is not None and state not in STATES:
            raise InvalidInputError("bad_state", f"the state of a question is {', '.join(STATES)}")
        if not 1 <= limit <= 1000:
            raise InvalidInputError("bad_limit", "limit is 1 to 1,000")
        before, last = (_LAST, UUID(int=2**128 - 1)) if after is None else _place(after)
        fields = (asked_of, before, last, limit + 1, task_id)
        if state == "open":
            rows = await self._database.run("list_open_questions", self._workspace, *fields)
        else:
            rows = await self._database.run("list_questions", self._workspace, state, *fields)
        found = [build(QuestionSummary, row) for row in rows]
        return page_of(found, limit, lambda one: cursor(one.asked_at, one.id.hex))

    async def get(self, question_id: UUID, *, sees: bool = False) -> TaskQuestion:
        """Return a question.

        Args:
            question_id: its id.
            sees: True to note that a person has seen it.

        Raises:
            NotFoundError: this workspace has no such question.
        """
        actor = self._actor if sees else None
        rows = await self._database.run("read_question", question_id, self._workspace, actor)
        if not rows:
            raise NotFoundError(f"there is no question {question_id} in workspace {self._workspace}")
        return _read(rows[0])

    async def answer(
        self,
        question_id: UUID,
        answer: Any,
        *,
        digest: str,
        comment: str | None = None,
        secret: str | None = None,
    ) -> TaskQuestion:
        """Answer a question; its task runs again.

        Args:
            question_id: its id.
            answer: what its form asks for, such as `{"approved": True}`.
            digest: that of the question as it was shown: an answer to something else is refused.
            comment: text for the handler, up to 4,000 characters.
            secret: that of a link, which must be valid.

        Returns:
            The question.

        Raises:
            NotFoundError: this workspace has no such question.
            InvalidInputError: `bad_answer` names the fields that do not fit; the question stays open.
            ConflictError: it has been answered, its time is over, its task has ended, or what is asked
                has changed.
            PermissionDeniedError: an approval by the key that submitted the task.

        Example:
            question = await client.questions.get(question_id)
            await client.questions.answer(question.id, {"approved": True}, digest=question.digest)
        """
        asked = await self.get(question_id)
        if comment is not None and (
            not isinstance(comment, str)
            or len(comment) > LONGEST_COMMENT
            or not is_text(comment, 4 * LONGEST_COMMENT)
        ):
            raise InvalidInputError("bad_answer", f"comment: pass text of up to {LONGEST_COMMENT} characters")
        if asked.state == "open" and asked.digest != digest:
            raise ConflictError(f"question {question_id} takes no answer: {_REFUSALS['changed']}")
        text = dumps(answer_of(asked.form, answer), _ANSWER)
        (row,) = await self._database.run(
            "answer_question", question_id, digest, text, self._workspace, self._actor, comment,
            None if secret is None else _hash(secret),
        )  # fmt: skip
        said = row["said"]
        if said == "own":
            raise PermissionDeniedError("the key that submitted the task cannot approve it")
        if said not in ("answered", "repeated"):
            why = _REFUSALS.get(said, f"its task is {said}")
            raise ConflictError(f"question {question_id} takes no answer: {why}")
        if row["agent_type"] is not None:
            await announce_queued(
                self._transport, [QueuedTask(self._workspace, row["agent_type"], row["task_id"])]
            )
        return await self.get(question_id)

    async def link(self, question_id: UUID, *, seconds: float) -> QuestionLink:
        """Let the holder of a new secret answer a question, once. An earlier secret is not valid any more.

        Args:
            question_id: its id.
            seconds: how long the link is valid, from a minute to 30 days.

        Raises:
            NotFoundError: this workspace has no such question.
            InvalidInputError: `bad_link`: the time is too short or too long.
            ConflictError: it takes no answer any more.
            PermissionDeniedError: an approval, by the key that submitted the task.
        """
        if not 60 <= seconds <= LONGEST_LINK_SECONDS:
            raise InvalidInputError("bad_link", "a link is valid for a minute to 30 days")
        secret = secrets.token_urlsafe(_SECRET_BYTES)
        rows = await self._database.run(
            "link_question", question_id, self._workspace, _hash(secret), seconds, self._actor
        )
        if not rows:
            found = await self.get(question_id)
            if found.state == "open":
                raise PermissionDeniedError("the key that submitted the task cannot approve it")
            raise ConflictError(f"question {question_id} takes no answer: it is {found.state}")
        return QuestionLink(secret, rows[0]["link_until"])


async def linked(database: Database, transport: JetStream, question_id: UUID, secret: str) -> Questions:
    """Return the questions of the workspace of a link, for who made it. Raises NotFoundError."""
    rows = await database.run("find_linked_question", question_id, _hash(secret))
    if not rows:
        raise NotFoundError("this link is not valid: it was used, its time is over, or there is a newer one")
    return Questions(
        database, transport, rows[0]["workspace"], f"link:{rows[0]['linked_by'] or 'unknown'}"[:255]
    )


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "replace")).digest()


def _read(row: Row) -> TaskQuestion:
    texts = {
        name: None if row[name] is None else loads_stored(row[name])
        for name in ("evidence", "form", "answer")
    }
    return build(TaskQuestion, {**row, **texts})


def _place(said: str) -> tuple[datetime, UUID]:
    try:
        time, last = parts(said)
        return instant(time), UUID(last)
    except ValueError as error:
        raise bad_cursor(said) from error
