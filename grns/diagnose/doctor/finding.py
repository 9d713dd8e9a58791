"""Findings of the doctor."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """Severity of a finding: an `error` stops or loses tasks, a `warning` can lead to it."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"

    @property
    def rank(self) -> int:
        """Rank, from the least severe."""
        return list(Severity).index(self)


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of a check: a sentence, and the action that helps, if any."""

    check: str
    severity: Severity
    sentence: str
    what_to_do: str = ""


def error(check: str, sentence: str, what_to_do: str) -> Finding:
    """Return a finding of something that does not work."""
    return Finding(check, Severity.ERROR, sentence, what_to_do)


def warning(check: str, sentence: str, what_to_do: str) -> Finding:
    """Return a finding of something that can stop to work, or works badly."""
    return Finding(check, Severity.WARNING, sentence, what_to_do)


def note(check: str, sentence: str, what_to_do: str = "") -> Finding:
    """Return a finding for information."""
    return Finding(check, Severity.NOTE, sentence, what_to_do)


def or_ok(check: str, found: Iterable[Finding], sentence: str) -> Sequence[Finding]:
    """Return the findings of a check, or `sentence` as its success."""
    return list(found) or [Finding(check, Severity.OK, sentence)]
