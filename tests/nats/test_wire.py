"""Commands as NATS reads them: nothing in a message can become a second command."""

from __future__ import annotations

import pytest

from grns.errors import BrokerRefusedError
from grns.nats.messages import SUBJECT_LENGTH, encode, lines, size, whole_number


def test_a_message_without_headers() -> None:
    assert encode("a.b", b"body") == b"PUB a.b  4\r\nbody\r\n"
    assert encode("a.b", b"", reply="_INBOX.x.1") == b"PUB a.b _INBOX.x.1 0\r\n\r\n"


def test_a_message_with_headers() -> None:
    command = encode("a.b", b"body", reply="r", headers=lines({"Nats-Msg-Id": "1", "X": "é"}))
    head, rest = command.split(b"\r\n", 1)
    block, body = rest.split(b"\r\n\r\n", 1)
    assert head == b"HPUB a.b r %d %d" % (len(block) + 4, len(block) + 8)
    assert block.decode() == "NATS/1.0\r\nNats-Msg-Id: 1\r\nX: é"
    assert body == b"body\r\n"
    assert size(command) == len(block) + 8


@pytest.mark.parametrize(
    "subject",
    ["", "a b", "a\tb", "a\r\nPUB evil 0", "a\nb", "a\x00b", "a\x7fb", "x" * (SUBJECT_LENGTH + 1)],
    ids=ascii,
)
def test_what_is_no_subject_is_refused(subject: str) -> None:
    with pytest.raises(BrokerRefusedError) as caught:
        encode(subject, b"")
    assert caught.value.code == "bad_subject"


def test_lines_that_are_written_out_stay_as_they_are() -> None:
    written = "X: 1\r\nY: 2\r\n"
    assert lines(written) == lines({"X": "1", "Y": "2"}) == written


def test_a_name_may_hold_what_a_name_may_hold() -> None:
    command = encode("a.b", b"", headers=lines({"50%": "%s", "%s%%d": "100%"}))
    assert b"NATS/1.0\r\n50%: %s\r\n%s%%d: 100%\r\n\r\n" in command


@pytest.mark.parametrize("name", ["", "a b", "a:b", "a\r\nb", "é"], ids=ascii)
def test_what_is_no_name_of_a_header_is_refused(name: str) -> None:
    with pytest.raises(BrokerRefusedError) as caught:
        lines({name: "value"})
    assert caught.value.code == "bad_header"


@pytest.mark.parametrize("value", ["a\r\nEvil: 1", "a\nb", "a\rb", "\r\n\r\nPUB evil 0\r\n\r\n"], ids=ascii)
def test_a_header_stays_one_line(value: str) -> None:
    command = encode("a", b"body", headers=lines({"X": value}))
    assert command.count(b"\r\n") == encode("a", b"body", headers=lines({"X": "a"})).count(b"\r\n")
    assert b"\n" not in command.replace(b"\r\n", b"")
    assert size(command) + len(command.split(b"\r\n", 1)[0]) + 4 == len(command)


@pytest.mark.parametrize(
    ("said", "number"),
    [("0", 0), ("007", 7), ("9" * 18, 10**18 - 1), ("9" * 19, None), ("9" * 5000, None), ("²", None),
     ("٣", None), ("-1", None), ("1.0", None), (" 1", None), ("", None)],
    ids=lambda value: ascii(value)[:20],
)  # fmt: skip
def test_a_number_in_a_header_is_ours_or_none(said: str, number: int | None) -> None:
    assert whole_number(said) == number
