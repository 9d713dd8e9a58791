"""Questions to people: what a handler asks, and what they answer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, Literal, TypeVar
from uuid import UUID, uuid5

from grns.errors import InvalidInputError
from grns.model.json import Limits, dumps, jsonable

ValueT = TypeVar("ValueT")

QuestionKind = Literal["question", "approval"]
APPROVAL = {
    "type": "object",
    "properties": {"approved": {"type": "boolean", "title": "Approve"}},
    "required": ["approved"],
}

_LONGEST_TITLE, _LONGEST_BODY, _MOST_ASKED = 255, 64 * 1024, 20
_EVIDENCE, _FORM = Limits(document_bytes=256 * 1024), Limits(document_bytes=64 * 1024)
_QUESTIONS = UUID("b6f3f2a4-6c0f-4a63-9a53-6a6f0c2b7d11")


@dataclass(frozen=True, slots=True)
class Question:
    """What a handler asks: all that is shown, the form of the answer, and whom it asks."""

    kind: QuestionKind
    title: str
    body: str | None
    evidence: Any
    form: Mapping[str, Any]
    asked_of: tuple[str, ...]

    @property
    def digest(self) -> str:
        """SHA-256 of all that is shown, in hexadecimal: an answer names it."""
        shown = _canonical([self.kind, self.title, self.body, self.evidence, self.form])
        text = json.dumps(shown, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def text(self, question_id: UUID) -> str:
        """Return the question as JSON for Postgres."""
        fields = {
            "id": str(question_id), "kind": self.kind, "title": self.title, "body": self.body,
            "evidence": self.evidence, "form": self.form, "asked_of": self.asked_of, "digest": self.digest,
        }  # fmt: skip
        return json.dumps(fields)


def question(
    *,
    kind: QuestionKind,
    title: str,
    body: str | None,
    evidence: Any,
    form: Mapping[str, Any],
    to: Sequence[str],
) -> Question:
    """Return a checked question. Raises InvalidInputError: `bad_handler`."""
    if not isinstance(title, str) or not 1 <= len(title) <= _LONGEST_TITLE or not title.isprintable():
        raise _bad(f"title: pass text of 1 to {_LONGEST_TITLE} printable characters")
    if body is not None and (not isinstance(body, str) or not is_text(body, _LONGEST_BODY)):
        raise _bad("body: pass text of up to 64 KiB")
    asked = (to,) if isinstance(to, str) else tuple(to)
    if len(asked) > _MOST_ASKED or not all(
        isinstance(one, str) and 1 <= len(one) <= 100 and one.isprintable() for one in asked
    ):
        raise _bad(f"to: pass up to {_MOST_ASKED} names, such as role:finance")
    dumps(form, _FORM)
    shown = None if evidence is None else json.loads(dumps(jsonable(evidence), _EVIDENCE))
    return Question(kind, title, body, shown, form, asked)


def is_text(text: str, most_bytes: int) -> bool:
    """Return whether Postgres can keep a text, and it is no longer than that."""
    try:
        return "\0" not in text and len(text.encode()) <= most_bytes
    except UnicodeEncodeError:
        return False


def question_id(task_id: str, step: str) -> UUID:
    """Return the id of a question: the same for each attempt."""
    return uuid5(_QUESTIONS, f"{task_id}\n{step}")


@dataclass(frozen=True, slots=True)
class PersonAnswer(Generic[ValueT]):
    """What a person has answered.

    `digest` is that of what was shown. If no one has answered in time, `is_timed_out` is true and `value` is
    the default.
    """

    value: ValueT
    digest: str
    answered_by: str | None = None
    answered_at: datetime | None = None
    comment: str | None = None
    is_timed_out: bool = False


@dataclass(frozen=True, slots=True)
class QuestionSummary:
    """A question in a list. `state` is `open`, `answered`, `expired`, or `ended` with its task."""

    id: UUID
    workspace: str
    task_id: str
    task_type: str
    kind: str
    title: str
    asked_of: list[str]
    state: str
    asked_at: datetime
    due_at: datetime | None
    answered_by: str | None
    answered_at: datetime | None
    seen_at: datetime | None


@dataclass(frozen=True, slots=True)
class TaskQuestion(QuestionSummary):
    """A question with all that is shown, its form, and its answer."""

    body: str | None
    evidence: Any
    form: dict[str, Any]
    digest: str
    answer: dict[str, Any] | None
    comment: str | None


def _canonical(value: Any) -> Any:
    """Return JSON as it is after Postgres has kept it: a float without a fraction is an integer."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**63:
        return int(value)
    if isinstance(value, Mapping):
        return {name: _canonical(inner) for name, inner in value.items()}
    return [_canonical(inner) for inner in value] if isinstance(value, list | tuple) else value


def _bad(what: str) -> InvalidInputError:
    return InvalidInputError("bad_handler", what)
