"""The transition table: nothing unreachable, nothing that cannot end, ends only left by redrive."""

from __future__ import annotations

import pickle
import re
from uuid import RFC_4122, UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grns.model.events import PAYLOADS
from grns.model.task import (
    LETTERS,
    REDRIVABLE,
    STATUS_AFTER,
    TERMINAL,
    TRANSITIONS,
    TaskStatus,
    Transition,
    new_id,
    random_uuid,
    uuid_of,
)

ids = [f"{row.source}-{row.by}-{row.target}" for row in TRANSITIONS]


def reachable(start: TaskStatus | None, *, without: str = "") -> set[TaskStatus]:
    """Return where a task can get to from a state, perhaps without one kind of transition."""
    found: set[TaskStatus] = set()
    pending: list[TaskStatus | None] = [start]
    while pending:
        here = pending.pop()
        for row in TRANSITIONS:
            if row.source == here and row.by != without and row.target not in found:
                found.add(row.target)
                pending.append(row.target)
    return found


def test_every_state_can_be_reached() -> None:
    assert reachable(None) == set(TaskStatus)


@pytest.mark.parametrize("status", TaskStatus)
def test_every_state_can_end(status: TaskStatus) -> None:
    assert status in TERMINAL or reachable(status, without="redrive") & TERMINAL


@pytest.mark.parametrize("status", sorted(set(TaskStatus) - TERMINAL))
def test_everything_that_has_not_ended_can_be_cancelled_and_can_succeed(status: TaskStatus) -> None:
    assert {TaskStatus.CANCELLED, TaskStatus.SUCCEEDED} <= reachable(status, without="redrive")


@pytest.mark.parametrize("row", TRANSITIONS, ids=ids)
def test_an_end_is_left_by_redrive_only(row: Transition) -> None:
    is_undone = (
        row.by == "follow" and row.source is TaskStatus.CANCELLED
    )  # what the follower itself has ended
    assert (row.source in TERMINAL) == (row.by in ("redrive", "operation") or is_undone)
    if row.by == "redrive":
        assert row.target in (TaskStatus.QUEUED, TaskStatus.WAITING)  # for room in its limits


def test_what_succeeded_stays() -> None:
    assert TERMINAL - {TaskStatus.SUCCEEDED} == REDRIVABLE
    assert {row.source for row in TRANSITIONS if row.by == "redrive"} == REDRIVABLE
    assert not reachable(TaskStatus.SUCCEEDED)


def test_no_transition_stands_there_twice() -> None:
    assert len(set(ids)) == len(ids)
    # Tasks, then time; time, then room in its limits; what it waited for, and a pause.
    assert {row.by for row in TRANSITIONS if row.source == row.target} == {
        "follow",
        "promote",
        "pause",
        "resume",
        "signal",
    }


@pytest.mark.parametrize("row", TRANSITIONS, ids=ids)
def test_each_transition_tells_what_the_protocol_knows(row: Transition) -> None:
    assert row.event in PAYLOADS
    assert row.event.startswith("evt.task.")
    assert (row.command is not None) == (row.target is TaskStatus.QUEUED), (
        "a command follows whatever may be claimed"
    )
    wants_letter = row.target in (TaskStatus.FAILED, TaskStatus.DEAD)
    assert (row.dead_letter is not None) == wants_letter
    if row.dead_letter is not None:
        assert row.dead_letter == f"dlq.task.{row.target}"
        assert row.dead_letter in PAYLOADS


def test_each_status_has_a_letter_of_its_own() -> None:
    assert LETTERS.keys() == set(TaskStatus)
    assert len(set(LETTERS.values())) == len(TaskStatus)
    assert all(len(letter) == 1 for letter in LETTERS.values())


@pytest.mark.parametrize("row", TRANSITIONS, ids=ids)
def test_an_event_tells_the_status(row: Transition) -> None:
    """So the events of a task rebuild its row."""
    assert STATUS_AFTER[row.event] is row.target


def test_only_a_claim_runs_a_task_and_only_the_attempt_or_the_reaper_ends_it() -> None:
    assert {row.by for row in TRANSITIONS if row.target is TaskStatus.RUNNING} == {"claim"}
    assert {row.by for row in TRANSITIONS if row.source is TaskStatus.RUNNING} == {
        "finish", "snooze", "suspend", "reap", "release",
    }  # fmt: skip
    assert {row.source for row in TRANSITIONS if row.by == "claim"} == {
        TaskStatus.QUEUED,
        TaskStatus.RETRY_WAIT,
    }


# ---------------------------------------------------------------- ids


@given(st.integers(0, 2**48 - 1), st.integers(0, 2**48 - 1), st.binary(min_size=10), st.binary(min_size=10))
def test_ids_sort_by_time(earlier: int, later: int, one: bytes, other: bytes) -> None:
    earlier, later = sorted((earlier, later))
    if earlier < later:
        assert new_id(earlier, one) < new_id(later, other)


@given(st.integers(0, 2**63), st.binary(min_size=10, max_size=16))
def test_an_id_may_stand_in_a_subject_and_has_one_length(milliseconds: int, randomness: bytes) -> None:
    assert re.fullmatch(r"gr-[0-9a-v]{26}", new_id(milliseconds, randomness))


@given(st.binary(min_size=10, max_size=10), st.binary(min_size=10, max_size=10))
def test_all_the_randomness_is_in_it(one: bytes, other: bytes) -> None:
    assert (new_id(1, one) == new_id(1, other)) == (one == other)


@given(st.integers(0, 2**48 - 1), st.binary(min_size=10, max_size=10))
def test_an_id_is_the_time_and_the_randomness_in_base_32(milliseconds: int, randomness: bytes) -> None:
    number = int(new_id(milliseconds, randomness).removeprefix("gr-"), 32)
    assert number == milliseconds << 82 | int.from_bytes(randomness, "big") << 2


@given(st.integers(0, 2**128 - 1))
def test_a_uuid_of_a_number_is_like_any_other(number: int) -> None:
    made, other = uuid_of(number), UUID(int=number)
    assert (made, hash(made), str(made), made.bytes) == (other, hash(other), str(other), other.bytes)
    assert made.is_safe is other.is_safe
    assert pickle.loads(pickle.dumps(made)) == other  # noqa: S301 - our own


def test_a_random_uuid_is_of_version_4() -> None:
    made = [random_uuid() for _ in range(100)]
    assert len(set(made)) == 100
    assert {(one.version, one.variant) for one in made} == {(4, RFC_4122)}
