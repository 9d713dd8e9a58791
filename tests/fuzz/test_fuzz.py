"""Whatever anybody sends is an envelope that can be sent on, or is refused with a known word, soon.

`make fuzz` does the same with more inputs.
"""

from __future__ import annotations

import os
import time
from random import Random
from uuid import UUID

import pytest

from grns.errors import RejectedError
from grns.model import envelope
from grns.worker import command
from tests.fuzz.inputs import FRONT_DOOR, GOOD, PRIORITY_SUBJECT, Sample, large
from tests.fuzz.runs import Tally, run, undisturbed
from tests.fuzz.verdict import judge
from tests.support.bad_input import ACCEPTED, RESERVED_TYPE, encoded, messages

EXAMPLES = int(os.environ.get("GRNS_FUZZ_EXAMPLES", "5000"))


@pytest.mark.timeout(60 + EXAMPLES // 500)
def test_whatever_comes_is_an_envelope_or_is_refused() -> None:
    tally = Tally()
    run(tally, EXAMPLES, first_seed=time.time_ns() % 2**32)
    assert tally.codes.total() >= EXAMPLES
    assert tally.codes[ACCEPTED] > EXAMPLES / 200, "else it says nothing of what is accepted"
    assert len(tally.codes) > 8, tally.codes


def test_the_corpus_is_judged_like_any_other_input() -> None:
    for case in messages():
        for subject in (FRONT_DOOR, PRIORITY_SUBJECT):
            assert judge(Sample("corpus", subject, case.value)) == case.code, case
    assert judge(Sample("corpus", PRIORITY_SUBJECT, encoded(RESERVED_TYPE.value))) == "bad_payload"
    for body in GOOD[:4]:
        assert judge(Sample("corpus", PRIORITY_SUBJECT, body)) == ACCEPTED


def test_the_largest_cost_little() -> None:
    tally = Tally()
    with undisturbed():
        for number in range(60):
            tally.add(Sample("large", PRIORITY_SUBJECT, large(Random(number))))
    assert tally.slowest_bytes > 1000
    assert {"too_large", "too_deep", "too_many_nodes"} <= set(tally.codes)


@pytest.mark.parametrize(
    "refusal",
    [
        RejectedError("no_such_code", "x"),
        RejectedError("bad_json", "a\u202eb"),
        RejectedError("bad_json", "x" * 500),
        ValueError("x"),
    ],
    ids=["code", "unprintable", "long", "of_another_kind"],
)
def test_a_refusal_that_is_none_is_noticed(monkeypatch: pytest.MonkeyPatch, refusal: Exception) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise refusal

    monkeypatch.setattr(envelope, "decode", refuse)
    with pytest.raises((AssertionError, ValueError)):
        run(Tally(), 20, first_seed=0)


def test_a_fast_reader_of_its_own_mind_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: object, **__: object) -> command.ExecuteCommand:
        return command.ExecuteCommand(UUID(int=1), "gr-0", "worker")

    monkeypatch.setattr(command, "read_own", read)
    with pytest.raises(AssertionError, match="fast reader"):
        run(Tally(), 20, first_seed=0)
