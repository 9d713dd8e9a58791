"""The protocol built wrongly, in the ways that are tempting: the model must find each."""

from __future__ import annotations

from tests.interleavings.explore import explore
from tests.interleavings.row import Violation
from tests.interleavings.world import Rules, begin

# By the name of the rule that is broken.
VARIANTS = {
    "fences_attempt": "a guard that asks for the owner alone",
    "has_log": "messages published after the commit, not logged with it",
    "buries": "a reaper that never buries",
    "has_floor": "no claims from Postgres: a task waits for its command",
    "has_new_ids": "one message id for all commands of a task",
}


def find(variant: str) -> list[str]:
    """Return what is violated, by which steps, and the world then; nothing where nothing is found."""
    try:
        explore(begin(tasks=1, workers=1, attempts=2, faults=2), Rules(**{variant: False}))
    except Violation as error:
        return str(error).splitlines()
    return []
