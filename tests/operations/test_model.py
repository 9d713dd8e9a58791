"""What somebody can ask an operation for."""

from __future__ import annotations

from typing import Any

import pytest

from grns.errors import InvalidInputError
from grns.model.filter import parse
from grns.model.json import DEFAULT_LIMITS
from grns.operations.model import Action, batch_size, request, since


@pytest.mark.parametrize(
    ("action", "text", "settled"),
    [
        ("redrive", "", "status:dead,failed"),
        ("redrive", "type:noop", "status:dead,failed type:noop"),
        ("redrive", "status:cancelled", "status:cancelled"),
        ("redrive", "-status:failed", "status:dead,failed -status:failed"),
        ("discard", "error:Timeout*", "status:dead,failed error:Timeout*"),
        ("cancel", "pool:writer", "status:queued,retry_wait,running,waiting pool:writer"),
        ("cancel", "status:queued", "status:queued"),
    ],
)
def test_a_filter_says_which_states_it_means(action: str, text: str, settled: str) -> None:
    """What is kept is what was meant, whatever the words mean one day."""
    wanted = request(action=action, filter=text)
    assert wanted.filter == str(parse(settled))
    assert request(action=action, filter=wanted.filter) == wanted


@pytest.mark.parametrize(
    ("action", "text"),
    [
        ("redrive", "status:queued"),
        ("redrive", "status:dead,succeeded"),
        ("discard", "status:running"),
        ("cancel", "status:dead"),
        ("cancel", "status:waiting,cancelled"),
    ],
)
def test_a_filter_that_finds_what_it_cannot_be_done_to_is_refused(action: str, text: str) -> None:
    with pytest.raises(InvalidInputError, match=f"one can {action} only") as caught:
        request(action=action, filter=text)
    assert caught.value.code == "bad_filter"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"action": "delete"}, "bad_operation"),
        ({}, "bad_operation"),
        ({"action": "redrive", "rate_per_minute": 0}, "bad_operation"),
        ({"action": "redrive", "rate_per_minute": 1e-12}, "bad_operation"),
        ({"action": "redrive", "rate_per_minute": float("inf")}, "bad_operation"),
        ({"action": "redrive", "rate_per_minute": "10"}, "bad_operation"),
        ({"action": "redrive", "canary": "yes"}, "bad_operation"),
        ({"action": "redrive", "patch": [1]}, "bad_operation"),
        ({"action": "redrive", "patch": {"a": "\x00"}}, "bad_string"),
        ({"action": "redrive", "patch": {"a": float("nan")}}, "bad_number"),
        ({"action": "redrive", "patch": {"a": "x" * DEFAULT_LIMITS.document_bytes}}, "too_large"),
        ({"action": "redrive", "agent_type": "a.b"}, "bad_operation"),
        ({"action": "redrive", "agent_type": "instance"}, "bad_operation"),
        ({"action": "redrive", "reason": ""}, "bad_operation"),
        ({"action": "redrive", "reason": "a\x00b"}, "bad_operation"),
        ({"action": "redrive", "reason": "x" * 1001}, "bad_operation"),
        ({"action": "redrive", "filter": "colour:red"}, "bad_filter"),
        ({"action": "discard", "canary": True}, "bad_operation"),
        ({"action": "discard", "patch": {}}, "bad_operation"),
        ({"action": "cancel", "agent_type": "writer"}, "bad_operation"),
    ],
)
def test_what_is_wrong_is_refused(fields: dict[str, Any], code: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        request(**{"filter": ""} | fields)
    assert caught.value.code == code


def test_nobody_means_all_tasks_by_saying_nothing() -> None:
    with pytest.raises(InvalidInputError, match="filter"):
        request(action="redrive")


def test_an_empty_patch_is_one() -> None:
    assert request(action="redrive", filter="", patch={}).patch == {}


def test_ages_are_of_the_moment_when_it_was_asked_for() -> None:
    wanted = parse("age:>1h,<2d type:noop")
    assert str(since(wanted, 60.2)) == str(parse(f"age:>{3660}s,<{2 * 86_400 + 60}s type:noop"))
    assert since(wanted, 0.0) == wanted
    assert since(parse("type:noop"), 60.0) == parse("type:noop")


@pytest.mark.parametrize(
    ("rate", "tasks"), [(None, 200), (0.5, 1), (60, 1), (90, 2), (600, 10), (12_000, 200), (1e6, 200)]
)
def test_a_batch_has_the_tasks_of_a_second(rate: float | None, tasks: int) -> None:
    assert batch_size(rate, 200) == tasks


def test_its_words_are_those_of_the_table() -> None:
    assert [action.value for action in Action] == ["redrive", "discard", "cancel"]


def test_request_of_a_rate_below_one_a_day_says_the_least() -> None:
    """L4: Postgres cannot add so long a pause, so the operation would move nothing."""
    with pytest.raises(InvalidInputError, match=r"rate_per_minute: .*at least 0.0007, one task a day"):
        request(action="redrive", filter="status:dead", rate_per_minute=1e-12)
    assert (
        request(action="redrive", filter="status:dead", rate_per_minute=1 / 1440).rate_per_minute == 1 / 1440
    )
