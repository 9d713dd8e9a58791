"""Strict JSON: what is refused and why, what comes back exactly, and that nothing takes long."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from grns.errors import InvalidInputError
from grns.model.json import INT64_MAX, INT64_MIN, Limits, check, dumps, loads_stored, parse
from tests.support.bad_input import ACCEPTED, DOCUMENTS, VALUES, Case

SMALL = Limits(document_bytes=1000, depth=3, nodes=8)
HUGE = Limits(document_bytes=2**40, depth=64, nodes=2**40)

keepable_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
keepable = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(INT64_MIN, INT64_MAX)
    | st.floats(allow_nan=False, allow_infinity=False)
    | keepable_text,
    lambda inside: st.lists(inside) | st.dictionaries(keepable_text, inside),
    max_leaves=20,
)
# What `json` can write, kept or not: lone surrogates, U+0000, numbers beyond all bounds.
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inside: st.lists(inside, max_size=5) | st.dictionaries(st.text(max_size=8), inside, max_size=5),
    max_leaves=12,
)


def code_of(action: Any, *arguments: Any) -> str:
    """Return the code of the refusal, or `accepted`."""
    try:
        action(*arguments)
    except InvalidInputError as error:
        refusal = error
    else:
        return ACCEPTED
    assert 0 < len(str(refusal)) < 300, "a refusal says why, and does not echo what was sent"
    return refusal.code


def same(one: Any, other: Any) -> bool:
    """Say whether two values are equal, types and signs of zeros included."""
    return repr(one) == repr(other) and one == other


@pytest.mark.parametrize("case", DOCUMENTS, ids=str)
def test_parse_answers_with_the_code(case: Case) -> None:
    assert code_of(parse, case.value) == case.code


@pytest.mark.parametrize("case", [case for case in DOCUMENTS if case.code == ACCEPTED], ids=str)
def test_parse_returns_what_the_document_says(case: Case) -> None:
    assert same(parse(case.value), json.loads(case.value))


@pytest.mark.parametrize("case", VALUES, ids=str)
def test_check_and_dumps_answer_with_the_code(case: Case) -> None:
    assert code_of(dumps, case.value) == case.code
    # The size of the whole is known only where it is written.
    expected = ACCEPTED if case.name.startswith("5_MB_") else case.code
    assert code_of(check, case.value) == expected


def test_a_text_is_judged_like_its_bytes() -> None:
    assert parse('{"a":"é"}') == {"a": "é"}
    assert code_of(parse, '"\ud800"') == "bad_encoding"
    assert code_of(parse, "\ufeff{}") == "bad_encoding"
    assert code_of(parse, '"' + "é" * 6 + '"', Limits(document_bytes=13)) == "too_large"
    assert code_of(parse, '"' + "é" * 6 + '"', Limits(document_bytes=14)) == ACCEPTED


def test_limits_at_and_just_over() -> None:
    whole = b'["' + b"x" * 996 + b'"]'
    assert code_of(parse, whole, SMALL) == ACCEPTED, "one text may fill the document"
    assert code_of(parse, whole + b" ", SMALL) == "too_large"
    assert code_of(parse, b"[[[]]]", SMALL) == ACCEPTED
    assert code_of(parse, b"[[[[]]]]", SMALL) == "too_deep"
    assert code_of(parse, b'[[["[]{}[]"]]]', SMALL) == ACCEPTED, "brackets in a string are no levels"
    assert code_of(parse, b"[1,2,3,4,5,6,7]", SMALL) == ACCEPTED
    assert code_of(parse, b"[1,2,3,4,5,6,7,8]", SMALL) == "too_many_nodes"
    seven = b'{"a":1,"b":2,"c":3,"d":4,"e":5,"f":6,"g":7'
    assert code_of(parse, seven + b"}", SMALL) == ACCEPTED, "keys do not count"
    assert code_of(parse, seven + b',"h":8}', SMALL) == "too_many_nodes"


def test_dumps_measures_bytes() -> None:
    assert dumps("ééé", Limits(document_bytes=8)) == '"ééé"'
    assert code_of(dumps, "ééé", Limits(document_bytes=7)) == "too_large"


@given(anything)
def test_parse_refuses_exactly_what_check_refuses(value: Any) -> None:
    """The short cut for small documents must not let anything pass, nor refuse more."""
    body = json.dumps(value).encode()
    assume(len(body) <= SMALL.document_bytes)
    judged, checked = code_of(parse, body, SMALL), code_of(check, value, SMALL)
    assert (judged == ACCEPTED) == (checked == ACCEPTED), (judged, checked)


@given(keepable)
def test_what_is_kept_comes_back_exactly(value: Any) -> None:
    text = dumps(value)
    assert same(parse(text), value)
    assert same(parse(text.encode()), value)
    assert same(loads_stored(text), value)
    assert parse(json.dumps(value)) == value, "escaped or not is the same"


@pytest.mark.parametrize("value", [2**53 + 1, -(2**53) - 1, INT64_MAX, INT64_MIN, {"": 1}, {"": {"": ""}}, 0])
def test_exact_values_come_back(value: Any) -> None:
    assert same(parse(dumps(value)), value)
    assert same(loads_stored(dumps(value)), value)


def test_stored_integers_beyond_64_bits_were_floats() -> None:
    """jsonb writes 1e308 out as 309 digits."""
    assert same(loads_stored("1" + "0" * 308), 1e308)
    assert same(loads_stored("-1" + "0" * 308), -1e308)
    assert same(loads_stored(str(INT64_MAX)), INT64_MAX)
    assert same(loads_stored(str(INT64_MIN)), INT64_MIN)
    assert same(loads_stored(str(2**63)), float(2**63))
    assert same(loads_stored("[0." + "0" * 323 + "5]"), [5e-324])
    assert loads_stored(None) is None


def test_parse_of_a_float_that_underflows_or_overflows_is_refused() -> None:
    """L12: as `grns.submit_task` does; `tests/tasks/test_submit_sql.py` compares the two."""
    assert code_of(parse, b"1e-400") == "bad_number"
    assert code_of(parse, b"-1e-99999999999999999999999") == "bad_number"
    assert same(parse(b"0e-99999999999999999999999"), 0.0)
    assert same(parse(b"5e-0000000000000000000000000324"), 5e-324)
    assert same(parse(b"1.7976931348623157e308"), 1.7976931348623157e308)
    assert code_of(parse, b"1.7976931348623159e308") == "bad_number"


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000 + b"]" * 100_000,
        b"[" * 5_000_000,
        b'{"a":' * 1_000_000,
        b"1" * 5_000,
        b"1" * 5_000_000,
        b"[" + b",".join([b"1" * 5_000] * 1_000) + b"]",
        b"1." + b"1" * 5_000_000,
        b"1e" + b"9" * 5_000_000,
        b"0." + b"0" * 5_000_000 + b"1",
        b'"' + rb"\u0000" * 500_000 + b'"',
        b'"' + rb"\ud800" * 500_000 + b'"',
        b"[" + b",".join([b"{}"] * 500_000) + b"]",
        b" " * 10_000_000,
        b'"' + b"\\" * 2_000_000,
    ],
    ids=lambda body: f"{body[:12].decode()}…{len(body)}",
)
def test_nothing_hangs(body: bytes) -> None:
    """Without the limit of the size, too: no text takes more than its length's time."""
    began = time.process_time()
    assert code_of(parse, body) != ACCEPTED
    code_of(parse, body, HUGE)
    assert time.process_time() - began < 5.0


def test_a_value_in_itself_ends() -> None:
    looped: dict[str, Any] = {}
    looped["a"] = [looped, looped]
    began = time.process_time()
    assert code_of(check, looped) == "too_deep"
    assert code_of(check, looped, Limits(depth=10**9)) == "too_many_nodes"
    assert time.process_time() - began < 1.0


def test_subclasses_of_plain_types_are_plain() -> None:
    class Text(str):
        pass

    class Number(float):
        def __repr__(self) -> str:
            return "no number"

    assert parse(dumps({Text("a"): [Text("b"), Number(1.5)]})) == {"a": ["b", 1.5]}
    assert code_of(dumps, Number(math.nan)) == "bad_number"


def test_a_long_list_is_refused_by_its_length() -> None:
    """A handler's list of five million must not stop the worker for seconds, nor cost 400 MB."""

    class Watched(list[int]):
        seen = 0

        def __iter__(self) -> Iterator[int]:
            for number in super().__iter__():
                Watched.seen += 1
                yield number

    assert code_of(check, Watched([0] * 1_000_000)) == "too_many_nodes"
    assert Watched.seen <= 2 * Limits().nodes
