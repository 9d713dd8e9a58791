"""What is sent: good messages that were harmed, bad ones, and what is no message at all."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from hypothesis import strategies as st

from grns.model import events as payloads
from grns.model import subjects
from tests.support import bad_input
from tests.support.bad_input import NIL

BUNCH = 10
FRONT_DOOR = subjects.shared_execute()
PRIORITY_SUBJECT = subjects.priority_subject("default", "worker", 2)
SUBJECTS = (
    *[FRONT_DOOR, PRIORITY_SUBJECT] * 4, subjects.shared_execute("tenant"), "evt.task.queued.v1",
    "cmd.task.submit.v1",
    "cmd.>", "",
)  # fmt: skip
_KIND = re.compile(rb'"kind": ?"([A-Za-z0-9_.-]{1,100})"')


@dataclass(frozen=True)
class Sample:
    """One input: how it was made, the subject it is said to have come on, and its bytes."""

    form: str
    subject: str
    body: bytes


GOOD = (
    b'{"schema_version":"v1","message_id":"7dc6e5af-0776-4f37-8f16-5767f5f9471f","trace_id":"tr-1",'
    b'"causation_id":null,"kind":"cmd.task.execute","emitted_at":"2026-02-06T21:00:00.123456Z","payload":'
    b'{"task_id":"gr-0","target_agent_type":"worker","reason":"new_task"}}',
    b'{"schema_version":"v1","message_id":"7dc6e5af-0776-4f37-8f16-5767f5f9471f","trace_id":"tr-1",'
    b'"causation_id":"0d0ae9e6-6ea8-4a0f-b4ab-9b1bd4c1c7f2","kind":"cmd.task.execute",'
    b'"emitted_at":"2026-02-06T21:00:00Z","payload":'
    b'{"task_id" : "gr-0", "target_agent_type" : "worker", "reason" : "lease_expired"}}',
    bad_input.encoded(bad_input.envelope()),
    json.dumps(bad_input.envelope(), indent=2).encode(),
    bad_input.encoded(bad_input.envelope(kind="evt.task.queued", payload={"n": [1.5, {"é": None}]})),
)  # fmt: skip
BAD = tuple(case.value for case in bad_input.messages() if len(case.value) < 2000)
PIECES = (
    b"null", b"{}", b"[]", b'"', b"\\", b"\\u0000", b"\\ud800", b"\\u202e", b"1e999", b"-0", b"9" * 30,
    b"[" * 70, b'{"a":' * 70, b'"v1"', b'"v2"', b",", b":", b" ", b"\n", b"\xff", b"\x00", b"\xef\xbb\xbf",
    b"\xed\xa0\x80", b"\xc2\x85", "\u202e".encode(), b"T24:00:00", b"Z", b"+23:59", b"T", b"instance",
)  # fmt: skip
_LETTERS = b' "0159abfxTZ:.-\\,{}[]'


def edited(chance: Random) -> bytes:
    """Return a message some of whose bytes are others, more or fewer."""
    body = bytearray(chance.choice(GOOD) if chance.random() < 0.8 else chance.choice(BAD))
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        EDITS[int(chance.random() * len(EDITS))](body, int(chance.random() * (len(body) + 1)), chance)
    return bytes(body)


def _flip(body: bytearray, place: int, chance: Random) -> None:
    if place < len(body):
        body[place] ^= 1 << chance.randrange(8)


def _replace(body: bytearray, place: int, chance: Random) -> None:
    letters = bytes(chance.choices(_LETTERS, k=chance.randint(1, 3)))
    body[place : place + len(letters)] = letters


def _insert(body: bytearray, place: int, chance: Random) -> None:
    body[place:place] = chance.choice(PIECES)


def _bring_in(body: bytearray, place: int, chance: Random) -> None:
    other = chance.choice(BAD + GOOD)
    start = chance.randint(0, len(other))
    body[place : place + chance.choice((0, 5))] = other[start : start + 20]


def _take_away(body: bytearray, place: int, chance: Random) -> None:
    del body[place : place + chance.randint(1, 20)]


def _truncate(body: bytearray, place: int, _: Random) -> None:
    del body[place:]


def _double(body: bytearray, place: int, chance: Random) -> None:
    body[place:place] = body[place : place + chance.randint(1, 60)]


EDITS: tuple[Callable[[bytearray, int, Random], None], ...] = (
    _flip, _replace, _replace, _insert, _bring_in, _take_away, _truncate, _double,
)  # fmt: skip


@dataclass
class Node:
    """A JSON object whose members are a list: the same name may be there twice."""

    members: list[tuple[str, Any]]


class Raw(str):
    """JSON text that is written as it is."""


TEXTS = (
    "", "v1", "v2", "\x00", "\ud800", "é", "\u202e", "\x85", "\x1b[2J", "a\r\nb", "a b", "a.b", "x" * 64,
    "x" * 65, "x" * 129, "x" * 5000, NIL, "7DC6E5AF-0776-4F37-8F16-5767F5F9471F", "urn:uuid:" + NIL,
    "7dc6\u202e5af", "{7dc6e5af-0776-4f37-8f16-5767f5f9471f}", "7dc6e5af07764f378f165767f5f9471f",
    "cmd.task.execute", "cmd.task.cancel", "cmd.agent.instance.x", "cmd.agent.a.b", "cmd.a\u202eb.c",
    "evt.task.queued", "evt.a.b.c", "instance", "-rf", "9999-12-31T23:59:59-23:59", "0000-00-00T00:00:00Z",
    "1970-01-01T00:00:00+23:59", "2026-02-30T21:00:00Z", "2026-02-06t21:00:00z", "2026-02-06T21:00:00",
    "2026-02-06T21:00:00.1234567Z", "2026-02-06T21:00:60Z", "2026-02-06T21:00:00\u202eZ",
    "٢٠٢٦-02-06T21:00:00Z", "1e5T",
)  # fmt: skip
NUMBERS = (
    "0", "-0", "-1", "1.5", "1E5", "1e22", "5e-324", "1e-400", "1e308", "1e309", "1e131071",
    "9007199254740993", "9223372036854775807", "9223372036854775808", "-9223372036854775809", "9" * 400,
    "0." + "1" * 5000, "NaN", "-Infinity", "01", "1.", "1770000000",
)  # fmt: skip
OTHERS = (
    "null", "true", "false", "[]", "{}", "[[]]", '{"":null}', '{"a":1,"a":1}', "[" * 70 + "]" * 70,
    '{"a":' * 63 + "1" + "}" * 63, "[" + "0," * 300 + "0]", '{"__proto__":{"task_id":"gr-0"}}',
    '"\\ud83d\\ude00"', '{"truncated":true}', '{"task_id":"gr-0"}',
    '{"task_id":"gr-0","target_agent_type":"a","reason":null}',
)  # fmt: skip
NAMES = ("status", "attempt", "owner_agent_id", "", "\u202e", "\ud800", "\x00", "Kind", "kind ", "x" * 300)


def _node(value: Any) -> Any:
    return (
        Node([(name, _node(inside)) for name, inside in value.items()]) if isinstance(value, dict) else value
    )


def _text(value: Any) -> str:
    if isinstance(value, Raw):
        return value
    if isinstance(value, Node):
        return "{" + ",".join(f"{json.dumps(name)}:{_text(inside)}" for name, inside in value.members) + "}"
    return json.dumps(value)


_DOCUMENTS = tuple(json.loads(body) for body in GOOD) + tuple(
    bad_input.envelope(
        kind=kind, payload={"task_id": "gr-0", "task_type": "a", "agent_type": "a", "attempt": 1}
    )
    for kind in (*payloads.PAYLOADS, "evt.agent.a.b", "cmd.agent.a.b", "cmd.agent.instance.a")
)


def rewritten(chance: Random) -> bytes:
    """Return an envelope with members that are missing, there twice, nested, or of other values."""
    document = _node(chance.choice(_DOCUMENTS))
    for _ in range(chance.choice((1, 1, 2, 3))):
        inside = [value for _, value in document.members if isinstance(value, Node)]
        node = chance.choice([document, *inside])
        place = int(chance.random() * len(node.members)) if node.members else -1
        REWRITINGS[int(chance.random() * len(REWRITINGS))](node, place, chance)
    return _text(document).encode("utf-8", "surrogatepass")


def any_value(chance: Random) -> Any:
    """Return a value that may be good in no place at all."""
    which = chance.random()
    if which < 0.5:
        return chance.choice(TEXTS)
    if which < 0.6:  # one character of all that there are, in a text that is otherwise good
        text = chance.choice(TEXTS)
        place = chance.randint(0, len(text))
        return text[:place] + chr(chance.randrange(0x110000)) + text[place:]
    return Raw(chance.choice(NUMBERS) if which < 0.8 else chance.choice(OTHERS))


def _value(node: Node, place: int, chance: Random) -> None:
    if place >= 0:
        node.members[place] = (node.members[place][0], any_value(chance))


def _drop(node: Node, place: int, _: Random) -> None:
    if place >= 0:
        del node.members[place]


def _again(node: Node, place: int, chance: Random) -> None:
    if place >= 0:
        name, value = node.members[place]
        node.members.append((name, value if chance.random() < 0.5 else any_value(chance)))


def _wrap(node: Node, place: int, chance: Random) -> None:
    if place >= 0:
        name, value = node.members[place]
        wrapped = Node([(name, value)]) if chance.random() < 0.5 else Raw(f"[{_text(value)}]")
        node.members[place] = (name, wrapped)


def _more(node: Node, _: int, chance: Random) -> None:
    node.members.append((chance.choice(NAMES), any_value(chance)))


def _shuffle(node: Node, _: int, chance: Random) -> None:
    chance.shuffle(node.members)


REWRITINGS: tuple[Callable[[Node, int, Random], None], ...] = (
    _value, _value, _value, _value, _drop, _again, _wrap, _more, _shuffle,
)  # fmt: skip


def large(chance: Random) -> bytes:
    """Return a message of up to a little more than is allowed, that is as much work as one can be."""
    count = chance.choice((1_000, 10_000, 100_000))
    many = {
        "lists": "[" + "[]," * count + "[]]",
        "numbers": "[" + "1e5," * count + "0]",
        "names": "{" + ",".join(f'"{place:x}":0' for place in range(count)) + "}",
        "open": chance.choice(("[", '{"a":')) * count,
        "text": '"' + chance.choice(("xxxxx", "é", "\\u00e9", "\\ud83d\\ude00")) * count + '"',
        "digits": "9" * 5 * count,
        "spaces": " " * 5 * count + "1",
    }
    inside = many[chance.choice(list(many))]
    return _text(_node(bad_input.envelope(payload=Node([("a", Raw(inside))])))).encode()


def anything(chance: Random) -> bytes:
    """Return any bytes or characters, or, rarely, as much of something as there can be."""
    which = chance.random()
    if which < 0.005:
        return large(chance)
    if which < 0.5:
        return chance.randbytes(chance.randint(0, 200))
    points = [
        chance.randrange(0x110000 if chance.random() < 0.3 else 0x80) for _ in range(chance.randint(0, 60))
    ]
    return "".join(map(chr, points)).encode("utf-8", "surrogatepass")


FORMS: tuple[tuple[str, Callable[[Random], bytes]], ...] = (
    *[("edited", edited)] * 5, *[("rewritten", rewritten)] * 6, ("anything", anything),
)  # fmt: skip


def bunch(number: int) -> tuple[Sample, ...]:
    """Return some inputs, all of which a number decides."""
    chance = Random(number)
    made = []
    for _ in range(BUNCH):
        form, make = chance.choice(FORMS)
        body = make(chance)
        made.append(Sample(form, _subject(body, chance), body))
    return tuple(made)


def _subject(body: bytes, chance: Random) -> str:
    """Return the subject that a message says it belongs on, or any other."""
    said = _KIND.search(body)
    if said is None or chance.random() < 0.3:
        return chance.choice(SUBJECTS)
    return f"{said[1].decode()}.v1"


# Drawing costs more than judging: a strategy that draws once for many inputs is a cheap one.
bunches = st.one_of(
    *[st.integers(0, 2**64 - 1).map(bunch) for _ in range(9)],
    st.binary(max_size=64).map(lambda body: (Sample("bytes", FRONT_DOOR, body),)),
)
