"""The model in the small: `make model` looks at all of it."""

from __future__ import annotations

import dataclasses

import pytest

from grns.model.outcome import Verb
from tests.interleavings.admitter import AdmitterRules, admitter_model, begin_admitter
from tests.interleavings.explore import explore
from tests.interleavings.follower import FollowerRules, begin_follower, begin_join, follower_model
from tests.interleavings.relay import RelayRules, begin_relay, relay_model
from tests.interleavings.row import Violation, claim, finish, reap, submit
from tests.interleavings.variants import (
    ADMITTER_VARIANTS,
    FOLLOWER_VARIANTS,
    RELAY_VARIANTS,
    VARIANTS,
    WAIT_VARIANTS,
    find,
)
from tests.interleavings.waits import WaitRules, begin_waits, waits_model
from tests.interleavings.world import Rules, begin, model


@pytest.mark.parametrize(
    ("tasks", "workers", "faults", "has_hints"),
    [(2, 1, 1, False), (1, 2, 2, True), (2, 2, 0, False)],
)
def test_nothing_is_violated_and_nothing_is_stuck(
    tasks: int, workers: int, faults: int, has_hints: bool
) -> None:
    start = begin(tasks, workers, 2, faults, has_hints=has_hints)
    seen = explore(start, model(Rules(has_hints=has_hints)))
    assert seen.worlds > 1000
    assert seen.steps > seen.worlds
    assert seen.ends > 2, "all succeeded, all dead, and some of both"


@pytest.mark.parametrize("tasks", [(0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 1, 1)])
def test_of_each_task_the_relay_publishes_every_row_in_order(tasks: tuple[int, ...]) -> None:
    seen = explore(begin_relay(tasks, faults=2), relay_model(RelayRules()))
    assert seen.worlds > 1000
    assert seen.ends > 2


@pytest.mark.parametrize(("redrives", "locks", "faults"), [(0, 0, 1), (0, 1, 0)])
def test_each_task_is_queued_or_cancelled_as_its_needs_end(redrives: int, locks: int, faults: int) -> None:
    seen = explore(begin_follower(3, redrives, locks, faults), follower_model(FollowerRules()))
    assert seen.worlds > 5000
    assert seen.ends > 2


@pytest.mark.parametrize(("redrives", "locks", "faults"), [(0, 0, 1), (0, 1, 0)])
def test_a_task_that_joins_others_runs_again_once_they_have_ended(
    redrives: int, locks: int, faults: int
) -> None:
    seen = explore(begin_join(redrives, locks, faults), follower_model(FollowerRules()))
    assert seen.worlds > 5000
    assert seen.ends > 2


@pytest.mark.parametrize(("retries", "cancels", "locks", "faults"), [(1, 0, 0, 1), (0, 1, 1, 0)])
def test_one_task_of_a_key_is_queued_or_running(retries: int, cancels: int, locks: int, faults: int) -> None:
    start = begin_admitter(2, retries=retries, cancels=cancels, locks=locks, faults=faults)
    seen = explore(start, admitter_model(AdmitterRules()))
    assert seen.worlds > 5000
    assert seen.ends > 2


@pytest.mark.parametrize(("sends", "faults", "timers"), [(2, 2, 1), (1, 2, 0)])
def test_a_task_that_waits_for_a_signal_ends_and_no_recorded_step_runs_again(
    sends: int, faults: int, timers: int
) -> None:
    seen = explore(begin_waits(sends, faults, timers), waits_model(WaitRules()))
    assert seen.worlds > 300
    assert seen.ends > 2


@pytest.mark.parametrize(
    ("variant", "violated", "at_most"),
    [
        ("fences_attempt", "attempt 1 of task 0 writes while attempt 2 runs", 4),
        ("has_log", "not all is done", 3),
        ("ends_spent", "task 0 is at attempt 3 of 2", 6),
        ("polls", "not all is done", 3),
        ("has_new_ids", "it knows its id", 6),
        ("knows_hinted", "command 1 of task 0 is acked for that of attempt 2", 5),
        ("awaits_waves", "row 0 arrives behind row 2 of its task", 8),
        ("keeps_followers", "row 0 arrives behind row 2 of its task", 10),
        ("marks_answered", "[0] count as published and are not", 3),
        ("reads_unpublished", "not all is done", 11),
        ("reads_rows", "not all is done", 8),
        ("waits_for_gaps", "not all is done", 8),
        ("looks_back", "not all is done", 10),
        ("keeps_later", "not all is done", 10),
        ("counts_turned", "task 2 is queued, and task 1, which it needs, is queued", 8),
        ("guards_cursor", "task 2 is queued, and task 1, which it needs, is failed", 12),
        ("brings_back", "not all is done", 13),
        ("refuses_stale", "not all is done", 19),
        ("decides_joins", "not all is done", 15),
        ("join_counts", "not all is done", 15),
        ("guards_epoch", "two of a key are queued or running", 10),
        ("reads_cursor_first", "not all is done", 8),
        ("reads_gaps", "not all is done", 14),
        ("counts_queued", "two of a key are queued or running", 8),
        ("keeps_left", "not all is done", 15),
        ("retries_wait", "two of a key are queued or running", 14),
        ("knows_steps", "attempt 2 runs a step that attempt 1 has recorded", 6),
        ("takes_and_notes", "not all is done", 12),
        ("looks_again", "not all is done", 7),
        ("fences_steps", "attempt 1 records a step while attempt 2 runs", 5),
        ("fences_waits", "attempt 1 lets the task wait while attempt 2 runs", 7),
    ],
)
def test_what_is_built_wrongly_is_found_by_the_shortest_way(
    variant: str, violated: str, at_most: int
) -> None:
    said, *steps, state = find(variant)
    assert violated in said
    assert 0 < len(steps) <= at_most
    assert state.strip().startswith(("World(", "Relay(", "Followed(", "Admission(", "Waiting("))


def test_each_rule_has_its_variant() -> None:
    kinds = Rules, RelayRules, FollowerRules, AdmitterRules, WaitRules
    rules = {rule.name for kind in kinds for rule in dataclasses.fields(kind)}
    variants = VARIANTS | RELAY_VARIANTS | FOLLOWER_VARIANTS | ADMITTER_VARIANTS | WAIT_VARIANTS
    assert rules - {"has_hints"} == variants.keys()


def test_what_is_not_in_the_table_cannot_be_done() -> None:
    row = submit(1).row
    claimed = claim(row, 1)
    assert claimed is not None
    assert claim(claimed.row, 2) is None
    assert reap(claimed.row) is None, "its lease is not over"
    with pytest.raises(Violation, match="the table knows no queued → succeeded by finish"):
        finish(row, Verb.SUCCEED)
