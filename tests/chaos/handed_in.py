"""What was handed in, and what was asked for afterwards, as those tell who did it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos import journal


@dataclass
class HandedIn:
    """The journals of all submitters. Of each of the open tries under a key something may have come."""

    open_tries: Counter[str] = field(default_factory=Counter)
    wanted: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    accepted: list[tuple[str, str]] = field(default_factory=list)
    cancels: set[str] = field(default_factory=set)
    answers: dict[str, str] = field(default_factory=dict)
    crashes: list[str] = field(default_factory=list)
    # What a task needs, by the ids of those that it needs, and how many of them must be met.
    needs: dict[str, tuple[dict[str, str], int]] = field(default_factory=dict)


def read_handed_in(directory: Path) -> HandedIn:
    """Read it all."""
    said = HandedIn()
    for note in journal.read(directory, "submits-*.jsonl"):
        match note["what"]:
            case "try":
                said.open_tries[note["key"]] += 1
                said.wanted[note["key"]] = note["type"], str(note["number"]), note.get("route", "")
            case "refused":
                said.open_tries[note["key"]] -= 1
            case "ok":
                said.accepted.append((note["key"], note["task"]))
            case "needs":
                said.needs[note["task"]] = note["needs"], note["required"] or len(note["needs"])
            case "cancel":
                said.cancels.add(note["task"])
            case "answered":
                said.answers[note["task"]] = note["answer"]
            case "crash":
                said.crashes.append(str(note))
    return said
