"""Output: which chunks count, whatever comes, in whatever order it may come."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grns.errors import InvalidInputError
from grns.model import output
from grns.model.output import ENDED, SUSPENDED, Chunk
from grns.model.output_view import MOST_BYTES, MOST_CHUNKS, OutputEvent, OutputReader, OutputView, place_of
from grns.model.task import TaskStatus

RUNNING, SUCCEEDED = TaskStatus.RUNNING, TaskStatus.SUCCEEDED


def text(attempt: int, number: int, kind: str = "text") -> Chunk:
    return Chunk(attempt, number, kind, f"{attempt}.{number} ")


def viewed(*chunks: Chunk, attempt: int = 0, is_live: bool = False) -> OutputView:
    view = OutputView()
    for chunk in chunks:
        view.add(chunk, 4, is_live=is_live)
    view.note(RUNNING, attempt or chunks[-1].attempt)
    return view


def shown(events: list[OutputEvent]) -> str:
    """Return what somebody has in the end who does as the events say."""
    said = ""
    for one in events:
        if one.event == "reset":
            said = ""
        elif one.event == "chunk":
            said += one.data
    return said


def read(view: OutputView, reader: OutputReader | None = None) -> list[OutputEvent]:
    reader = reader or OutputReader()
    found = news = reader.take(view, is_loading=False)
    while any(one.event == "chunk" for one in news) and news[-1].event != "end":
        news = reader.take(view, is_loading=False)
        found = found + news
    return found


def test_a_reader_gets_the_state_the_chunks_and_the_end() -> None:
    view, reader = viewed(text(1, 1)), OutputReader()
    assert [one.event for one in read(view, reader)] == ["state", "chunk"]
    view.add(text(1, 2), 4, is_live=True)
    assert [(one.event, one.place) for one in read(view, reader)] == [("chunk", "1.2")]
    view.add(text(1, 3, ENDED), 4, is_live=True)
    view.note(SUCCEEDED, 1)
    view.has_ended = True
    assert read(view, reader) == [OutputEvent("end", 1, status="succeeded")]


def test_without_its_mark_the_end_may_be_missing() -> None:
    view = viewed(text(1, 1))
    view.note(SUCCEEDED, 1)
    view.has_ended = True
    assert [one.event for one in read(view)] == ["state", "chunk", "gap", "end"]


def test_what_is_stored_completes_what_was_heard() -> None:
    """The mark of a wait was missed: without it, the next attempt would begin anew."""
    view = viewed(text(1, 1))
    assert not view.follows(text(2, 1))
    view.rebuild([(text(1, 1), 4), (text(1, 2, SUSPENDED), 4), (text(2, 1), 4)])
    assert shown(read(view)) == "1.1 2.1 "
    view.rebuild([])
    assert shown(read(view)) == "1.1 2.1 ", "the broker has lost it, and the server has it"


def test_many_large_chunks_lose_the_beginning() -> None:
    view = OutputView()
    for number in range(1, 101):
        view.add(Chunk(1, number, "json", {}), MOST_BYTES // 10, is_live=True)
    view.note(RUNNING, 1)
    assert [one.number for one in read(view) if one.number] == list(range(91, 101))


def test_what_a_failed_attempt_has_streamed_does_not_count() -> None:
    view, reader = viewed(text(1, 1), text(1, 2)), OutputReader()
    first = read(view, reader)
    view.add(text(2, 1), 4, is_live=True)
    events = first + read(view, reader)
    assert [one.event for one in events] == ["state", "chunk", "chunk", "state", "reset", "chunk"]
    assert shown(events) == "2.1 " == shown(read(view))


def test_a_later_attempt_that_says_nothing_resets_too() -> None:
    view, reader = viewed(text(1, 1)), OutputReader()
    first = read(view, reader)
    view.note(RUNNING, 2)
    assert shown(first + read(view, reader)) == "" == shown(read(view))


def test_a_worker_that_has_lost_its_task_is_not_heard() -> None:
    view = viewed(text(1, 1), attempt=2)
    assert not view.add(text(1, 2), 4, is_live=True)
    assert shown(read(view)) == ""


def test_what_was_said_before_a_wait_stays_also_if_a_later_attempt_fails() -> None:
    chunks = [text(1, 1), text(1, 2, SUSPENDED), text(2, 1), text(3, 1)]
    view, reader, events = OutputView(), OutputReader(), list[OutputEvent]()
    for chunk in chunks:
        view.add(chunk, 4, is_live=True)
        view.note(RUNNING, chunk.attempt)
        events += read(view, reader)
    assert shown(events) == "1.1 3.1 " == shown(read(view))
    assert [one.event for one in events].count("reset") == 1


def test_who_comes_back_goes_on_or_begins_anew() -> None:
    view = viewed(text(1, 1), text(1, 2, SUSPENDED), text(2, 1), text(2, 2))
    assert shown(read(view, OutputReader((2, 1)))) == "2.2 "
    assert shown(read(view, OutputReader((1, 1)))) == "2.1 2.2 "
    view.note(RUNNING, 3)
    events = read(view, OutputReader((2, 2)))
    assert [one.event for one in events] == ["state", "reset", "chunk"]
    assert shown(events) == "1.1 "


def test_missing_chunks_are_a_gap() -> None:
    view = viewed(text(1, 2), text(1, 5))
    assert [(one.event, one.lost) for one in read(view)[1:]] == [
        ("gap", 1), ("chunk", None), ("gap", 2), ("chunk", None),
    ]  # fmt: skip
    assert not view.follows(text(1, 7))
    assert view.follows(text(1, 6))
    assert not view.follows(text(2, 1)), "attempt 1 has not said that it has ended"
    view.add(text(1, 6, ENDED), 4, is_live=True)
    assert view.follows(text(2, 1))


def test_much_output_loses_its_beginning() -> None:
    view = OutputView()
    for number in range(1, MOST_CHUNKS + 11):
        view.add(text(1, number), 4, is_live=True)
    view.note(RUNNING, 1)
    events = read(view)
    assert (events[1].event, events[1].lost) == ("gap", 10)
    assert len(events) == MOST_CHUNKS + 2


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 5)), max_size=40), st.data())
def test_late_chunks_are_never_shown(places: list[tuple[int, int]], data: st.DataObject) -> None:
    """Whatever comes, twice, late or out of order: what a reader has is of the newest attempt alone."""
    view, reader, events, newest = OutputView(), OutputReader(), list[OutputEvent](), 0
    for place in places:
        view.add(text(*place), 4, is_live=True)
        newest = max(newest, place[0])
        if data.draw(st.booleans()):
            view.note(RUNNING, newest)
            events += read(view, reader)
    view.note(RUNNING, newest)
    events += read(view, reader)
    words = shown(events).split()
    assert all(word.startswith(f"{newest}.") for word in words)
    assert words == sorted(set(words))
    assert shown(events) == shown(read(view))


@pytest.mark.parametrize(
    "body",
    [
        b"", b"null", b"[]", b'"text"', b"{}", b'{"attempt":1,"number":1,"kind":"text"}',
        b'{"attempt":"1","number":1,"kind":"text","data":""}',
        b'{"attempt":1,"number":0,"kind":"text","data":""}',
        b'{"attempt":true,"number":1,"kind":"text","data":""}',
        b'{"attempt":1,"number":1,"kind":"Text","data":""}',
        b'{"attempt":1,"number":99999999999999999999,"kind":"text","data":""}',
    ],
)  # fmt: skip
def test_what_is_no_chunk_is_none(body: bytes) -> None:
    assert output.read(body) is None


def test_a_message_is_read_as_it_was_written() -> None:
    for chunk in (text(3, 7), Chunk(1, 1, "tool_call", {"a": [1, None]}), Chunk(1, 2, SUSPENDED, None)):
        assert output.read(output.encode(chunk)) == chunk


@pytest.mark.parametrize("said", ["", "1", "1.", ".1", "1.x", "-1.2", "1.2.3", "١.٢", "1" * 50 + ".1"])
def test_what_is_no_place_is_none(said: str) -> None:
    assert place_of(said) is None


@pytest.mark.parametrize(
    ("said", "sent"),
    [
        ("plain", "plain"),
        ("👩\u200d💻", "👩\u200d💻"),
        ("a\ud83d", "a\ufffd"),
        ("\ude00b", "\ufffdb"),
        ("\x00", "\ufffd"),
    ],
)
def test_text_is_what_json_can_carry(said: str, sent: str) -> None:
    assert output.text_of(said) == sent
    assert output.read(output.encode(Chunk(1, 1, "text", output.text_of(said)))) == Chunk(1, 1, "text", sent)


def test_kinds_are_names() -> None:
    assert output.kind_of(None, "text") == "text"
    assert output.kind_of(None, 1) == "json"
    assert output.kind_of("tool_call", {}) == "tool_call"
    for kind in ("", "A", SUSPENDED, "a" * 33, 5):
        with pytest.raises(InvalidInputError, match="kind"):
            output.kind_of(kind, "text")
