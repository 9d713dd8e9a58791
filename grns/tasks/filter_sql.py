"""Filters as conditions on rows of tasks; what they were given is always a parameter."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, cast

from sqlalchemy import (
    ARRAY,
    ColumnCollection,
    ColumnElement,
    Text,
    and_,
    exists,
    func,
    literal,
    or_,
    select,
    true,
)

from grns.model.filter import Filter, Number, Pattern, Term
from grns.postgres.tables import labels, needs, tags, tasks, texts

Columns = ColumnCollection[str, Any]
Condition = ColumnElement[bool]

_COLUMNS = {
    "status": "status",
    "type": "task_type",
    "pool": "agent_type",
    "worker": "owner_agent_id",
    "fingerprint": "fingerprint",
    "trace": "trace_id",
    "key": "idempotency_key",
    "id": "id",
    "waits": "waits_for",
    "priority": "priority",
    "attempt": "attempt",
}
# What people say of a task is in tables beside it.
_BESIDE = {"tag": tags.c.tag, "title": labels.c.title, "creator": labels.c.created_by}
_SIGNS: dict[str, Callable[[Any, Any], Condition]] = {
    "": operator.eq,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
# Who is older was created earlier.
_EARLIER = {">": "<", ">=": "<=", "<": ">", "<=": ">="}
_SPECIAL = re.compile(r"[\\%_]")


def conditions(wanted: Filter, of: Columns = tasks.c) -> list[Condition]:
    """Return what all has to be true of a row that is wanted, of `tasks` or of what has its columns."""
    found = [_condition(term, of) for term in wanted.terms if term.name != "discarded"]
    return [*found, *discarded(wanted, of)]


def discarded(wanted: Filter, of: Columns = tasks.c) -> list[Condition]:
    """Return what of that is about discarding: none may be, unless asked for, or named by its id."""
    asked = [_condition(term, of) for term in wanted.terms if term.name == "discarded"]
    return asked or ([of.discarded_at.is_(None)] if wanted.patterns("id") is None else [])


def _condition(term: Term, of: Columns) -> Condition:
    either = [*_alike(term, of), *(_compared(term, number, of) for number in term.numbers)]
    bounds = [_compared(term, bound, of) for bound in term.bounds]
    if bounds:
        either.append(or_(*bounds) if term.is_negated else and_(*bounds))
    # Where there is no value at all, none of it fits.
    return or_(*either).is_not(true()) if term.is_negated else or_(*either)


def _alike(term: Term, of: Columns) -> list[Condition]:
    if term.name == "discarded":
        is_left = of.discarded_at.is_(None)
        return [is_left if pattern.fits("no") else ~is_left for pattern in term.patterns]
    if term.name == "workflow":
        members = [needs.c.task_id == pattern.pieces[0] for pattern in term.patterns]
        return [exists().where(or_(*members), needs.c.needs == of.id).correlate(of.id.table)]
    if term.name == "needs":
        needed = [needs.c.needs == pattern.pieces[0] for pattern in term.patterns]
        return [exists().where(or_(*needed), needs.c.task_id == of.id).correlate(of.id.table)]
    if term.name == "text":
        return [_says(term.patterns, of)]
    if term.name in _BESIDE:
        text = _BESIDE[term.name]
        found = select(text).where(
            text.table.c.task_id == of.id,
            _workspace(text, of),
            or_(*(_fits(pattern, text) for pattern in term.patterns)),
        )
        # With an offset, Postgres looks each task up, and does not read all labels first.
        return [found.offset(0).correlate(of.id.table).exists()]
    return [_fits(pattern, text) for pattern in term.patterns for text in _texts(term, of)]


def _says(patterns: Iterable[Pattern], of: Columns) -> Condition:
    """Return the condition that the index has the words of a pattern for a task."""
    either = [_has_words(*pattern.words) for pattern in patterns]
    found = select(texts.c.owner).where(texts.c.owner == of.id, _workspace(texts.c.words, of), or_(*either))
    return found.offset(0).correlate(of.id.table).exists()


def _has_words(whole: list[str], beginning: str) -> Condition:
    has_whole = texts.c.words.op("@>")(literal(whole, ARRAY(Text)))
    if not beginning:
        return has_whole
    joined = func.concat(" ", func.array_to_string(texts.c.words, " "), type_=Text)  # a word has no blank
    return and_(has_whole, joined.like(f"% {beginning}%"))


def _workspace(text: Any, of: Columns) -> Condition:
    return cast("Condition", text.table.c.workspace == of.workspace)


def _texts(term: Term, of: Columns) -> list[ColumnElement[Any]]:
    """Return the texts one of which has to be like a pattern."""
    if term.kind.name == "payload":
        return [func.jsonb_extract_path_text(of.payload, *term.path)]
    if term.name == "error":
        return [of.last_error["class"].astext, of.last_error["message"].astext]
    return [of[_COLUMNS[term.name]]]


def _fits(pattern: Pattern, text: ColumnElement[Any]) -> Condition:
    if pattern.is_exact:
        return text == pattern.pieces[0]
    if not any(pattern.pieces):
        return text.is_not(None)
    return text.like("%".join(_SPECIAL.sub(r"\\\g<0>", piece) for piece in pattern.pieces))


def _compared(term: Term, number: Number, of: Columns) -> Condition:
    if term.name == "age":
        since = func.now() - literal(timedelta(seconds=number.number))
        return _SIGNS[_EARLIER[number.sign]](of.created_at, since)
    return _SIGNS[number.sign](of[_COLUMNS[term.name]], number.number)
