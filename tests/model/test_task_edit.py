"""What somebody can want to be otherwise in a task."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from grns.errors import InvalidInputError
from grns.model.json import Limits
from grns.model.submission import edit, edition
from grns.model.task import Task, TaskStatus

NOW = datetime(2026, 2, 6, 21, 0, 0, 123456, UTC)
TASK = Task(
    "gr-0", "default", "noop", "worker", 2, TaskStatus.QUEUED, 0, None, 0, 7, "tr-1", NOW, NOW,
    payload={"url": "a", "deep": {"kept": 1, "gone": 2}},
)  # fmt: skip


def payload_of(**fields: Any) -> Any:
    """Return the payload that an edit leaves."""
    text = edit(**fields).payload_of(TASK, Limits())
    return None if text is None else json.loads(text)


def test_a_payload_is_replaced_or_patched() -> None:
    assert payload_of(payload={"a": 1}) == {"a": 1}
    assert payload_of(patch={"deep": {"gone": None}, "new": True}) == {
        "url": "a",
        "deep": {"kept": 1},
        "new": True,
    }
    assert payload_of(priority=0) is None


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({}, "bad_edit"),
        ({"payload": {}, "patch": {}}, "bad_edit"),
        ({"priority": 4}, "bad_edit"),
        ({"priority": True}, "bad_edit"),
        ({"delay_seconds": -1}, "bad_edit"),
        ({"delay_seconds": 0.0, "run_at": datetime.now(UTC)}, "bad_edit"),
        ({"run_at": datetime.now(UTC) + timedelta(days=400)}, "bad_edit"),
        ({"run_at": "2026-12-24T09:00:00"}, "bad_edit"),
        ({"delay_seconds": float("nan")}, "bad_edit"),
        ({"payload": [1]}, "bad_edit"),
        ({"patch": "a"}, "bad_edit"),
        ({"payload": {"a": "\x00"}}, "bad_string"),
        ({"patch": {"a": "x" * 500_000}}, "too_large"),
    ],
)
def test_what_is_wrong_is_refused(fields: dict[str, Any], code: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        edit(**fields).payload_of(TASK, Limits())
    assert caught.value.code == code


def test_each_change_makes_another_edition() -> None:
    """An edit leaves the version as it is, a transition may come in the same microsecond."""
    editions = {
        edition(TASK),
        edition(replace(TASK, version=8)),
        edition(replace(TASK, updated_at=NOW + timedelta(microseconds=1))),
    }
    assert len(editions) == 3
    assert edition(TASK) == edition(replace(TASK, payload={}))
