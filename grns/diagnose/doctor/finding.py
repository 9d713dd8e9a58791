"""One finding: which check it is of, how bad it is, a sentence, and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How bad a finding is: `error` keeps tasks from running or loses something, `warning` may soon."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"

    @property
    def rank(self) -> int:
        """Its place, the least severe first."""
        return list(Severity).index(self)


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check has found. `what_to_do` is empty where there is nothing to be done."""

    check: str
    severity: Severity
    sentence: str
    what_to_do: str = ""


def error(check: str, sentence: str, what_to_do: str) -> Finding:
    """Return that something does not work."""
    return Finding(check, Severity.ERROR, sentence, what_to_do)


def warning(check: str, sentence: str, what_to_do: str) -> Finding:
    """Return that something may soon not work, or does so worse than it could."""
    return Finding(check, Severity.WARNING, sentence, what_to_do)


def note(check: str, sentence: str, what_to_do: str = "") -> Finding:
    """Return what is worth knowing."""
    return Finding(check, Severity.NOTE, sentence, what_to_do)


def or_ok(check: str, found: Iterable[Finding], sentence: str) -> Sequence[Finding]:
    """Return what a check has found; where that is nothing, that all is well, in a sentence."""
    return list(found) or [Finding(check, Severity.OK, sentence)]
