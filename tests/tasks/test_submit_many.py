"""Submitting many at once: what they say alike is checked and sent once, and each stays what it said."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import pytest

from grns.errors import InvalidInputError
from grns.model.json import DEFAULT_LIMITS
from grns.model.submission import Submission, submission
from grns.postgres.database import Database
from grns.tasks.submit import Prepared, Preparer, Submissions, Submitted, prepare
from tests.support.store import row_of


def made(**fields: Any) -> Prepared:
    """Return a submission that is ready to be sent."""
    return prepare(submission(**{"task_type": "noop"} | fields), DEFAULT_LIMITS)


async def test_each_task_of_a_batch_is_as_it_was_submitted(shared: Database) -> None:
    """What all say alike is sent once; one that differs must not be taken for the first."""
    plain: dict[str, Any] = {"task_type": "noop"}
    cause = uuid4()
    others: list[dict[str, Any]] = [
        {"workspace": "elsewhere"}, {"task_type": "other"}, {"agent_type": "scout"}, {"priority": 0},
        {"delay_seconds": 60.0}, {"max_attempts": 7}, {"idempotency_key": "k"}, {"causation_id": cause},
        {"trace_id": "tr-1"}, {"payload": {"n": 1}},
    ]  # fmt: skip
    submissions = Submissions(shared, batch_limit=10)
    for batch in ([plain, plain | other] for other in others):
        for said in (batch, batch[::-1], batch[1:]):
            if "idempotency_key" in batch[1]:
                said = [one | ({"idempotency_key": str(uuid4())} if len(one) > 1 else {}) for one in said]
            answers = await submissions.submit_many([made(**one) for one in said])
            for one, answer in zip(said, answers, strict=True):
                assert isinstance(answer, Submitted)
                row = await row_of(shared, answer.id)
                expected = made(**one).submission
                for name in ("workspace", "task_type", "agent_type", "priority", "max_attempts"):
                    assert row[name] == getattr(expected, name), (name, said)
                assert row["idempotency_key"] == expected.idempotency_key
                assert row["causation_id"] == expected.causation_id
                assert row["trace_id"] == answer.trace_id == (expected.trace_id or answer.trace_id)
                assert (row["status"] == "waiting") == bool(expected.delay_seconds)
                assert json.loads(row["payload"]) == expected.payload


async def test_in_a_mixed_batch_a_conflict_is_judged_by_its_own_columns(shared: Database) -> None:
    submissions = Submissions(shared, batch_limit=10)
    first = await submissions.submit(made(idempotency_key="k", workspace="elsewhere", agent_type="scout"))
    batch = [
        made(),
        made(idempotency_key="k", workspace="elsewhere", agent_type="scout"),
        made(idempotency_key="k", workspace="elsewhere"),
        made(idempotency_key="k", agent_type="scout"),
    ]
    answers = await submissions.submit_many(batch)
    is_new = [answer.created if isinstance(answer, Submitted) else None for answer in answers]
    assert is_new == [True, False, None, True]
    assert isinstance(answers[1], Submitted)
    assert answers[1].id == first.id


def read_one(fields: Any) -> Submission:
    """Check all of a submission."""
    return submission(**fields)


def test_what_is_alike_is_checked_once_and_payloads_each() -> None:
    checked: list[Any] = []

    def read(fields: Any) -> Submission:
        checked.append(fields)
        return read_one(fields)

    preparer = Preparer(read, DEFAULT_LIMITS)
    prepared = [preparer.prepare({"task_type": "noop", "payload": {"n": n}}) for n in range(5)]
    assert [one.payload for one in prepared] == [f'{{"n":{n}}}' for n in range(5)]
    assert len({one.id for one in prepared}) == len({one.trace_id for one in prepared}) == 5
    assert preparer.prepare({"task_type": "noop"}).payload == "{}"
    assert len(checked) == 1
    keyed = [preparer.prepare({"task_type": "noop", "idempotency_key": str(n)}) for n in range(3)]
    assert [one.submission.idempotency_key for one in keyed] == ["0", "1", "2"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"priority": True}, {"priority": 1.0}, {"delay_seconds": True}, {"task_type": ["noop"]},
        {"payload": None}, {"payload": []}, {"payload": {1: 2}}, {"payload": {"a": {1: 2}}},
        {"payload": {"a": float("nan")}},
        {"payload": {"a": "x" * 262_145}}, {"elsewhere": 1}, {1: 2},
    ],
    ids=lambda wrong: ascii(wrong)[:30],
)  # fmt: skip
def test_a_wrong_one_is_refused_after_good_ones_as_it_is_alone(wrong: dict[Any, Any]) -> None:
    """True is 1 for Python, and 1.0 as well: the good ones must not vouch for them."""
    good = {"task_type": "noop", "priority": 1, "delay_seconds": 1, "payload": {"a": 1}}
    preparer = Preparer(read_one, DEFAULT_LIMITS)
    preparer.prepare(good)
    alone = _refusal(Preparer(read_one, DEFAULT_LIMITS), good | wrong)
    assert _refusal(preparer, good | wrong) == alone


def _refusal(preparer: Preparer, fields: Any) -> str:
    with pytest.raises((InvalidInputError, TypeError)) as raised:
        preparer.prepare(fields)
    return str(raised.value)
