"""One cause: a word that stays the same, a sentence for people, and the commands that help."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a task is where it is, or something besides that is worth knowing."""

    word: str
    sentence: str
    next_steps: Sequence[str] = ()
