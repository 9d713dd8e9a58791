"""The model in the small: `make model` looks at all of it."""

from __future__ import annotations

import dataclasses

import pytest

from grns.model.outcome import Verb
from tests.interleavings.explore import explore
from tests.interleavings.row import Violation, claim, finish, reap, submit
from tests.interleavings.variants import VARIANTS, find
from tests.interleavings.world import Rules, begin


@pytest.mark.parametrize(("tasks", "workers", "faults"), [(2, 1, 1), (1, 2, 2), (2, 2, 0)])
def test_nothing_is_violated_and_nothing_is_stuck(tasks: int, workers: int, faults: int) -> None:
    seen = explore(begin(tasks, workers, 2, faults), Rules())
    assert seen.worlds > 1000
    assert seen.steps > seen.worlds
    assert seen.ends > 2, "all succeeded, all dead, and some of both"


@pytest.mark.parametrize(
    ("variant", "violated", "at_most"),
    [
        ("fences_attempt", "attempt 1 of task 0 writes while attempt 2 runs", 4),
        ("has_log", "not all is done", 3),
        ("buries", "task 0 is at attempt 3 of 2", 6),
        ("has_floor", "not all is done", 3),
        ("has_new_ids", "it knows its id", 6),
    ],
)
def test_what_is_built_wrongly_is_found_by_the_shortest_way(
    variant: str, violated: str, at_most: int
) -> None:
    said, *steps, world = find(variant)
    assert violated in said
    assert 0 < len(steps) <= at_most
    assert world.strip().startswith("World(")


def test_each_rule_has_its_variant() -> None:
    assert {rule.name for rule in dataclasses.fields(Rules)} == set(VARIANTS)


def test_what_is_not_in_the_table_cannot_be_done() -> None:
    row = submit(1).row
    claimed = claim(row, 1)
    assert claimed is not None
    assert claim(claimed.row, 2) is None
    assert reap(claimed.row) is None, "its lease is not over"
    with pytest.raises(Violation, match="the table knows no queued → succeeded by finish"):
        finish(row, Verb.SUCCEED)
