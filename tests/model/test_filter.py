"""The filter language: what a text means, in which one way it is written, and what is said of a wrong one."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grns.errors import InvalidInputError
from grns.model.filter import (
    LONGEST,
    MOST_VALUES,
    Filter,
    Number,
    Pattern,
    Term,
    complete,
    parse,
    read,
)
from grns.model.filter_kinds import KINDS, TERMS, Kind
from grns.model.task import REDRIVABLE, TaskStatus
from tests.support.harness import ROOT

PAGE = (ROOT / "docs/filters.md").read_text()

texts = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=8)
names = st.from_regex(r"\A[A-Za-z0-9_-]{1,8}\Z")
signs = st.sampled_from(["", ">", ">=", "<", "<="])


@st.composite
def terms(draw: st.DrawFn) -> Term:
    """Return a term that somebody may write, in no order."""
    kind = draw(st.sampled_from(TERMS))
    name = ".".join(["payload", *draw(st.lists(names, min_size=1, max_size=8))])
    values = draw(st.lists(_values(kind), min_size=1, max_size=3))
    return Term(name if kind.name == "payload" else kind.name, tuple(values), draw(st.booleans()))


def _values(kind: Kind) -> st.SearchStrategy[Pattern | Number]:
    if kind.form == "choice":
        return st.sampled_from(kind.values).map(lambda value: Pattern((value,)))
    if kind.form == "number":
        return st.builds(Number, signs, st.integers(0, 3 if kind.values else 999_999_999))
    if kind.form == "age":
        return st.builds(Number, signs.filter(bool), st.integers(0, 3660 * 86_400))
    if kind.name == "text":
        return st.builds(lambda text, end: Pattern((f"{text}w", *end)), texts, st.sampled_from([(), ("",)]))
    exact = texts.map(lambda text: Pattern((text,)))
    if kind.is_whole:
        return exact
    if kind.name != "error":
        return exact | texts.map(lambda text: Pattern((text, "")))
    inner = st.lists(texts.filter(bool), max_size=2)
    return exact | st.builds(lambda begin, inner, end: Pattern((begin, *inner, end)), texts, inner, texts)


@given(st.lists(terms(), max_size=6))
def test_what_is_written_is_read_back(wanted: list[Term]) -> None:
    found = parse(str(Filter(tuple(wanted))))
    assert parse(str(found)) == found
    assert {(term.name, term.is_negated, value) for term in found.terms for value in term.values} == {
        (term.name, term.is_negated, value) for term in wanted for value in term.values
    }


@given(st.lists(terms(), max_size=6).flatmap(st.permutations))
def test_the_order_of_terms_means_nothing(wanted: list[Term]) -> None:
    there = parse(str(Filter(tuple(wanted))))
    back = parse(str(Filter(tuple(reversed(wanted)))))
    assert there == back
    assert str(there) == str(back)


@given(
    st.text(max_size=40)
    | st.text(st.sampled_from('status:dead,-"\\* gr-error<>=.\x00\ud800\u202e1hpayload'), max_size=40)
)
def test_any_text_is_a_filter_or_refused(text: str) -> None:
    """Of what is refused not much is shown, and it can be shown anywhere."""
    refusal = refusal_of(text)
    if refusal is None:
        assert parse(str(parse(text))) == parse(text)
    else:
        assert refusal.code == "bad_filter"
        assert len(str(refusal)) < 500
        assert str(refusal).isprintable()


def refusal_of(text: str) -> InvalidInputError | None:
    """Return what is said of a text that is no filter."""
    try:
        parse(text)
    except InvalidInputError as error:
        return error
    return None


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("", ""),
        (" \n\t ", ""),
        ("type:a status:dead", "status:dead type:a"),
        ("status:failed,dead  status:dead", "status:dead,failed"),
        ("-status:dead status:failed", "status:failed -status:dead"),
        ('type:"fetch_page"', "type:fetch_page"),
        ("type:a\\*b", "type:a\\*b"),
        ('error:"connection  reset"', 'error:"connection  reset"'),
        ('error:*"reset by"*', 'error:"*reset by*"'),
        ("error:a**b", "error:a*b"),
        ('payload.a:"x,y"', 'payload.a:"x,y"'),
        ("payload.a:x\\,y", 'payload.a:"x,y"'),
        ("payload.url:https://a.example/?q=1", "payload.url:https://a.example/?q=1"),
        ('payload.a:""', 'payload.a:""'),
        ("age:>60m,<172800s", "age:<2d,>1h"),
        ("attempt:>2 attempt:<9 attempt:0", "attempt:0,<9,>2"),
        ("priority:>=2", "priority:>=2"),
        ("gr-06gv", "id:gr-06gv*"),
        ("-gr-06gv*,gr-07", "-id:gr-06gv*,gr-07*"),
        ("tr-8f", "trace:tr-8f*"),
    ],
)
def test_each_filter_is_written_in_one_way(text: str, canonical: str) -> None:
    assert str(parse(text)) == canonical
    assert parse(canonical) == parse(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("stat:dead", "at character 1, 'stat:dead': there is no such term (did you mean status?)"),
        ("type:x State:dead", "at character 8, 'State:dead': there is no such term"),
        ("zzzz:x", "there are status, type, pool"),
        ("status:done", "at character 8, 'done': status is one of waiting, queued"),
        ("status:dea*", "status is one of"),
        ("status:dead,", "at its end: a value is missing"),
        ("status: type:x", "at character 8, ' type:x': a value is missing"),
        ("type:", "a value is missing"),
        ("-", "a value is missing"),
        (",", "a value is missing"),
        ('type:"x', "at character 6, '\"x': this quote has no other one behind it"),
        ("type:a*b", "in type a * may only stand at the end of a value"),
        ("type:*b", "in type a * may only stand at the end of a value"),
        ("payload.a:*b", "in payload a * may only stand at the end of a value"),
        ("*", "a word alone is how an id or a trace id begins"),
        ('""', "a word alone is how an id or a trace id begins"),
        ("age:1h", "age is a bound of whole seconds"),
        ("age:>1.5s", "age is a bound of whole seconds"),
        ("age:>4000d", "age is a bound of whole seconds"),
        ("age:>soon", "age is a bound of whole seconds"),
        ("priority:4", "priority is a whole number from 0 to 3, or a bound"),
        ("priority:<10", "priority is a whole number from 0 to 3, or a bound"),
        ("attempt:many", "attempt is a whole number, or a bound"),
        ("attempt:-1", "attempt is a whole number, or a bound"),
        ("attempt:>9999999999", "attempt is a whole number, or a bound"),
        ("attempt:=1", "attempt is a whole number, or a bound"),
        ("payload:x", "payload has a path behind it"),
        ("payload.:x", "payload has a path behind it"),
        ("payload.a b:x", "at character 11, 'b:x': there is no such term"),
        ("payload.é:x", "payload has a path behind it"),
        (f"payload{'.a' * 9}:x", "payload has a path behind it"),
        ("type:a\x00b", "this character cannot be looked for"),
        ('type:"a\tb"', "this character cannot be looked for"),
        ("type:\ud800", "this character cannot be looked for"),
        ("type:\\\x07", "this character cannot be looked for"),
        ("type:a\\", "a backslash stands in front of a character"),
        ("http://a.example", "there is no such term"),
        ("x" * (LONGEST + 1), f"has {LONGEST + 1} characters"),
        (f"type:{','.join(map(str, range(MOST_VALUES + 1)))}", f"more than {MOST_VALUES} values"),
    ],
    ids=lambda value: ascii(value)[:40],
)
def test_what_is_wrong_is_pointed_at_and_what_is_right_is_said(text: str, says: str) -> None:
    with pytest.raises(InvalidInputError, match=re.escape(says)) as raised:
        parse(text)
    assert raised.value.code == "bad_filter"


@pytest.mark.parametrize(
    ("text", "states"),
    [
        ("", set(TaskStatus)),
        ("status:dead,failed", {TaskStatus.DEAD, TaskStatus.FAILED}),
        ("status:dead -status:dead", set()),
        ("-status:succeeded,cancelled", set(TaskStatus) - {TaskStatus.SUCCEEDED, TaskStatus.CANCELLED}),
        ("worker:a", {TaskStatus.RUNNING}),
        ("-worker:a", set(TaskStatus)),
        ("worker:a status:dead", set()),
        ("discarded:yes", REDRIVABLE),
        ("discarded:yes,no", set(TaskStatus)),
        ("-discarded:no status:dead,queued", {TaskStatus.DEAD}),
    ],
)
def test_it_knows_in_which_states_a_task_can_be(text: str, states: set[TaskStatus]) -> None:
    assert parse(text).states == states


@pytest.mark.parametrize(
    ("text", "priorities"),
    [
        ("", {0, 1, 2, 3}),
        ("priority:1", {1}),
        ("priority:0,>2", {0, 3}),
        ("priority:>0,<3", {1, 2}),
        ("-priority:0,>2", {1, 2}),
        ("-priority:<1,>2", {1, 2}),
        ("priority:1 -priority:1", set()),
    ],
)
def test_it_knows_which_priorities_a_task_can_have(text: str, priorities: set[int]) -> None:
    assert parse(text).priorities == priorities


def test_texts_are_told_where_they_are_exact() -> None:
    wanted = parse("type:b,a pool:x* -key:k id:gr-1")
    assert wanted.texts("type") == ("a", "b")
    assert wanted.texts("pool") is None
    assert wanted.patterns("pool") == (Pattern(("x", "")),)
    assert (wanted.texts("key"), wanted.patterns("key")) == (None, None)
    assert wanted.names == {"type", "pool", "key", "id"}


@pytest.mark.parametrize(
    ("beginning", "goes_on"),
    [
        ("st", ["status:"]),
        ("-sta", ["-status:"]),
        ("pay", ["payload."]),
        ("status:f", ["status:failed"]),
        ("-status:dead,f", ["-status:dead,failed"]),
        ("priority:", [f"priority:{value}" for value in "0123"]),
        ("type:f", []),
        ("nonsense:f", []),
        ("x", []),
    ],
)
def test_a_beginning_is_completed(beginning: str, goes_on: list[str]) -> None:
    assert [text for text, _ in complete(beginning)] == goes_on


def test_everything_is_offered_at_the_beginning() -> None:
    offered = dict(complete(""))
    assert len(offered) == len(TERMS)
    assert all(offered.values())


@pytest.mark.parametrize("kind", TERMS, ids=lambda kind: kind.name)
def test_each_kind_has_an_example_and_a_place_in_the_documentation(kind: Kind) -> None:
    assert parse(kind.example).names == {kind.name}
    assert KINDS[kind.name] is kind
    assert f"`{kind.name}" in PAGE
    assert all(read(kind, [value]) for value in kind.values)


def test_the_filters_of_the_documentation_are_filters() -> None:
    found = re.findall(r"^    ([^$#\n]+)$", PAGE, re.M)
    assert len(found) > 3
    for text in found:
        assert str(parse(text))


@pytest.mark.parametrize(
    ("text", "whole", "beginning"),
    [
        ("text:report", ["report"], ""),
        ('text:"A report"', ["a", "report"], ""),
        ('text:"a repo*"', ["a"], "repo"),
        ('text:"feb report feb*"', ["feb", "report"], "feb"),
        ('text:"report *"', ["report"], ""),
        ("text:fetch_pa*", ["fetch"], "pa"),
        ("text:*", [], ""),
    ],
)
def test_words_of_a_text_are_whole_but_for_the_last(text: str, whole: list[str], beginning: str) -> None:
    (term,) = parse(text).terms
    assert [pattern.words for pattern in term.patterns] == [(whole, beginning)]


@pytest.mark.parametrize("text", ["text:--", 'text:""', "text:a*b", "text:*a"])
def test_text_without_words_is_refused(text: str) -> None:
    refusal = refusal_of(text)
    assert refusal is not None
    assert "text is words" in str(refusal)
