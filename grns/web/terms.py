"""Filters as pages need them: made of values, and with another state in them."""

from __future__ import annotations

from grns.errors import InvalidInputError
from grns.model.filter import Filter, Pattern, Term, parse


def term(name: str, *values: str) -> str:
    """Return the filter that finds what is exactly one of these."""
    return str(Term(name, tuple(Pattern((value,)) for value in values)))


def split(text: str) -> tuple[str | None, str]:
    """Return the one state that a filter asks for, None where it is none or several; and the rest of it."""
    try:
        found = parse(text)
    except InvalidInputError:  # the list says so
        return None, text
    rest = Filter(tuple(one for one in found.terms if one.name != "status"))
    states = [one for one in found.terms if one.name == "status"]
    if len(states) == 1 and not states[0].is_negated and len(states[0].patterns) == 1:
        return states[0].patterns[0].pieces[0], str(rest)
    return None, str(rest) if not states else text


def together(*texts: str) -> str:
    """Return several filters as one text."""
    return " ".join(text for text in texts if text)
