"""The protocol built wrongly, in the ways that are tempting: the models must find each."""

from __future__ import annotations

from tests.interleavings import explore as exploration
from tests.interleavings.relay import RelayRules, begin_relay, relay_model
from tests.interleavings.world import Rules, begin, model

# By the name of the rule that is broken.
VARIANTS = {
    "fences_attempt": "a guard that asks for the owner alone",
    "has_log": "messages published after the commit, not logged with it",
    "ends_spent": "a reaper that queues again without end",
    "polls": "no claims from Postgres: a task waits for its command",
    "has_new_ids": "one message id for all commands of a task",
    "knows_hinted": "a worker acks any command of a task that it was told of",
}
RELAY_VARIANTS = {
    "awaits_waves": "a wave that does not wait for the one before it",
    "keeps_followers": "later rows of a refused row's task that stay in their waves",
    "marks_answered": "a row that counts as published once it is sent",
    "reads_unpublished": "a relay that begins behind the last row that was published",
}


def find(variant: str) -> list[str]:
    """Return what is violated, by which steps, and the state then; nothing where nothing is found."""
    if variant in RELAY_VARIANTS:
        return exploration.find(begin_relay((0, 1, 0), faults=2), relay_model(RelayRules(**{variant: False})))
    start = begin(tasks=1, workers=1, attempts=2, faults=2)
    return exploration.find(start, model(Rules(**{variant: False})))
