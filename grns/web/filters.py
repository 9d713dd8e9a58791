"""Filters as text: building terms from values, and finding the status that a filter asks for."""

from __future__ import annotations

from grns.errors import InvalidInputError
from grns.model.filter import Filter, Pattern, Term, parse


def term(name: str, *values: str) -> str:
    """Return a filter term that matches exactly these values."""
    return str(Term(name, tuple(Pattern((value,)) for value in values)))


def split_status(text: str) -> tuple[str | None, str]:
    """Return the only status that a filter asks for, and the other terms.

    The status is None if the filter asks for no status or for several; the text is then unchanged.
    """
    try:
        parsed = parse(text)
    except InvalidInputError:  # the list of tasks shows the error
        return None, text
    others = Filter(tuple(term for term in parsed.terms if term.name != "status"))
    statuses = [term for term in parsed.terms if term.name == "status"]
    if len(statuses) == 1 and not statuses[0].is_negated and len(statuses[0].patterns) == 1:
        return statuses[0].patterns[0].pieces[0], str(others)
    return None, text if statuses else str(others)


def join(*texts: str) -> str:
    """Return filters as one filter."""
    return " ".join(text for text in texts if text)
