"""The protocol built wrongly, in the ways that are tempting: the models must find each."""

from __future__ import annotations

from collections.abc import Sequence

from tests.interleavings import explore as exploration
from tests.interleavings.admitter import AdmitterRules, admitter_model, begin_admitter
from tests.interleavings.follower import Followed, FollowerRules, begin_follower, begin_join, follower_model
from tests.interleavings.relay import RelayRules, begin_relay, relay_model
from tests.interleavings.waits import WaitRules, begin_waits, waits_model
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
FOLLOWER_VARIANTS = {
    "reads_rows": "a follower that takes a task for what its event says",
    "waits_for_gaps": "a follower that never reads a row that commits after a later one",
    "looks_back": "a follower that looks at no need of what begins to wait",
    "keeps_later": "a follower that forgets a task that was locked",
    "counts_turned": "a follower that counts each end that it reads",
    "guards_cursor": "a follower that writes though it was overtaken",
    "brings_back": "what was cancelled for a need stays so when that is redriven",
    "refuses_stale": "a follower that turns needs whose counts a join has replaced",
    "decides_joins": "a follower that decides a task that joins only when one of its tasks ends",
    "join_counts": "a join that takes all of its tasks for open",
}
ADMITTER_VARIANTS = {
    "guards_epoch": "an admitter whose statement counts though another one leads",
    "reads_cursor_first": "an admitter that reads the tasks, and then where the log is",
    "reads_gaps": "an admitter that never reads a row that commits after a later one",
    "counts_queued": "an admitter that counts only what runs",
    "keeps_left": "an admitter that forgets a task that was locked",
    "retries_wait": "a retry that is queued without the admitter",
}
WAIT_VARIANTS = {
    "knows_steps": "an attempt that does not look for recorded steps",
    "takes_and_notes": "a signal that is taken before it is recorded",
    "looks_again": "a task that begins to wait though its signal has come meanwhile",
    "fences_steps": "a worker that has lost its task, and records a step",
    "fences_waits": "a worker that has lost its task, and lets it wait",
}
# Before what is read again says something else than the row.
_REDRIVEN = (
    "task 1 is written as failed", "task 1 is committed as failed", "task 1 is redriven",
    "task 1 is written as succeeded", "task 1 is committed as succeeded", "task 2 is written",
    "task 2 is committed as waiting",
)  # fmt: skip


def find(variant: str) -> list[str]:
    """Return what is violated, by which steps, and the state then; nothing where nothing is found."""
    if variant in FOLLOWER_VARIANTS:
        return exploration.find(_start(variant), follower_model(FollowerRules(**{variant: False})))
    if variant in ADMITTER_VARIANTS:
        start = begin_admitter(2, retries=1, cancels=0, locks=1, faults=1)
        return exploration.find(start, admitter_model(AdmitterRules(**{variant: False})))
    if variant in WAIT_VARIANTS:
        waits = begin_waits(sends=1, faults=1, timers=0)
        return exploration.find(waits, waits_model(WaitRules(**{variant: False})))
    if variant in RELAY_VARIANTS:
        return exploration.find(begin_relay((0, 1, 0), faults=2), relay_model(RelayRules(**{variant: False})))
    world = begin(tasks=1, workers=1, attempts=2, faults=2)
    return exploration.find(world, model(Rules(**{variant: False})))


def _start(variant: str) -> Followed:
    """Return a state from which it is not far to where a follower that is built wrongly goes wrong."""
    start = begin_follower(3, redrives=1, locks=0, faults=1)
    if variant == "reads_rows":
        return _after(start, _REDRIVEN)
    if variant in ("refuses_stale", "decides_joins", "join_counts"):
        return begin_join(redrives=1, locks=0, faults=0)
    if variant == "brings_back":
        return start._replace(faults=0)
    return start._replace(redrives=0, locks=int(variant == "keeps_later"))


def _after(state: Followed, labels: Sequence[str]) -> Followed:
    """Return the state after some steps."""
    rules = follower_model(FollowerRules())
    for label in labels:
        state = next(after for said, after in rules.steps(state) if said == label)
    return state
