"""`make fuzz EXAMPLES=1000000`: whatever anybody sends is an envelope, or is refused with a known word.

Each input is read in every way in which grns reads messages; `judge` says what must hold.
`tests/test_fuzz.py` does the same with fewer inputs.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from random import Random
from typing import Any
from uuid import UUID

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from grns import command, envelope, payloads, subjects
from grns.errors import Rejected
from grns.settings import load
from tests import bad_input
from tests.bad_input import ACCEPTED, NIL

LIMITS = load().envelope_limits
# What one input may cost, its five readings together; the largest have half a megabyte.
CPU_SECONDS = 1.0
LONGEST_REFUSAL = 400
CODES = {
    "bad_encoding", "bad_envelope", "bad_json", "bad_number", "bad_payload", "bad_string", "bad_subject",
    "duplicate_key", "kind_mismatch", "too_deep", "too_large", "too_many_nodes", "unexpected_kind",
    "unknown_kind", "unknown_version",
}  # fmt: skip
BUNCH = 10
_AT_ONCE = 1_000
PART = 25_000
# What is refused with these is an envelope all the same.
_AN_ENVELOPE = {ACCEPTED, "bad_payload", "unknown_kind", "unexpected_kind", "kind_mismatch", "bad_subject"}

FRONT_DOOR = subjects.front_door()
LANE = subjects.lane("default", "worker", 2)
SUBJECTS = (
    *[FRONT_DOOR, LANE] * 4, subjects.front_door("tenant"), "evt.task.queued.v1", "cmd.task.submit.v1",
    "cmd.>", "",
)  # fmt: skip
_KIND = re.compile(rb'"kind": ?"([A-Za-z0-9_.-]{1,100})"')


@dataclass(frozen=True)
class Sample:
    """One input: how it was made, the subject it is said to have come on, and its bytes."""

    form: str
    subject: str
    body: bytes


# ---------------------------------------------------------------- what is sent

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


# ---------------------------------------------------------------- the strategies


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


# ---------------------------------------------------------------- what must hold


def judge(sample: Sample) -> str:
    """Read one input in every way; return the code of its refusal as a command, or `accepted`."""
    answer = _command(sample)
    quick = command.read_own(sample.body, subject=sample.subject, limits=LIMITS)
    assert quick is None or quick == answer, "the fast reader agrees with the models"
    _is_plain(answer)
    code = answer.code if isinstance(answer, Rejected) else ACCEPTED
    if code in _AN_ENVELOPE:
        _judge_envelope(sample.body)
    if not isinstance(answer, Rejected):
        assert isinstance(answer.message_id, UUID)
        assert subjects.token(answer.task_id, name="task id")
        assert subjects.agent_type(answer.agent_type)
    return code


def _judge_envelope(body: bytes) -> None:
    """Read what is an envelope, whatever it was refused for."""
    said = envelope.decode(body, limits=LIMITS)
    _is_plain(_payload(said))
    encoded = envelope.encode(said)
    again = envelope.decode(encoded, limits=LIMITS)
    assert again == said, "what is accepted can be sent on"
    assert envelope.encode(again) == encoded


def _payload(said: envelope.Envelope) -> object:
    try:
        return payloads.read(said)
    except Rejected as error:
        return error.with_traceback(None)


def _command(sample: Sample) -> command.Command | Rejected:
    try:
        return command.read_any(sample.body, subject=sample.subject, limits=LIMITS)
    except Rejected as error:
        return error.with_traceback(None)


def _is_plain(answer: object) -> None:
    """Check that a refusal has a known code and a text that can be shown anywhere."""
    if isinstance(answer, Rejected):
        assert answer.code in CODES, answer.code
        assert 0 < len(str(answer)) <= LONGEST_REFUSAL, str(answer)
        assert str(answer).isprintable(), ascii(str(answer))


# ---------------------------------------------------------------- runs


@dataclass
class Tally:
    """What became of all inputs of a run."""

    codes: Counter[str] = field(default_factory=Counter)
    forms: Counter[str] = field(default_factory=Counter)
    slowest_seconds: float = 0.0
    slowest_bytes: int = 0

    def __add__(self, other: Tally) -> Tally:
        """Return both together."""
        slowest = max(self, other, key=lambda tally: tally.slowest_seconds)
        return Tally(
            self.codes + other.codes,
            self.forms + other.forms,
            slowest.slowest_seconds,
            slowest.slowest_bytes,
        )

    def add(self, sample: Sample) -> None:
        """Judge one input, and how long that took."""
        code, seconds = _timed(sample)
        if seconds > CPU_SECONDS / 2:  # on a busy machine, that of others may be counted too
            seconds = min(seconds, _timed(sample)[1])
        self.codes[code] += 1
        self.forms[sample.form] += 1
        if seconds > self.slowest_seconds:
            self.slowest_seconds, self.slowest_bytes = seconds, len(sample.body)
        assert seconds < CPU_SECONDS, f"{seconds:.2f} s of CPU time for {len(sample.body)} bytes"


def _timed(sample: Sample) -> tuple[str, float]:
    began = time.thread_time()
    try:
        code = judge(sample)
    except Exception as error:
        error.add_note(f"{sample.form} on {sample.subject!r}: {sample.body[:2000]!r}")
        raise
    return code, time.thread_time() - began


def run(tally: Tally, examples: int, first_seed: int) -> None:
    """Judge inputs until there are so many; those of one seed are the same each time."""
    while (left := examples - tally.codes.total()) > 0:
        with undisturbed():
            _probe(tally, min(-(-left // BUNCH), _AT_ONCE), first_seed)
        first_seed += 1


def _probe(tally: Tally, examples: int, number: int) -> None:
    @seed(number)
    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(bunches)
    def probe(samples: tuple[Sample, ...]) -> None:
        for sample in samples:
            tally.add(sample)

    probe()


@contextmanager
def undisturbed() -> Iterator[None]:
    """Keep the collector from walking through all that there is while something else is measured."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def show(console: Console, tally: Tally, seconds: float) -> None:
    """Print what became of the inputs."""
    table = Table("answer", "inputs", "share")
    for code, count in tally.codes.most_common():
        table.add_row(code, f"{count:,}", f"{count / tally.codes.total():.2%}")
    console.print(table)
    accepted, total = tally.codes[ACCEPTED], tally.codes.total()
    forms = ", ".join(f"{form} {count:,}" for form, count in tally.forms.most_common())
    console.print(f"{total:,} inputs ({forms}) in {seconds:.0f} s")
    console.print(f"{accepted:,} accepted, {total - accepted:,} refused with {len(tally.codes) - 1} codes")
    console.print(
        f"slowest: {tally.slowest_seconds * 1000:.1f} ms of CPU time, {tally.slowest_bytes:,} bytes"
    )


def _part(number: int) -> Tally:
    os.nice(10)  # the machine is also somebody else's
    tally = Tally()
    run(tally, PART, number)
    return tally


def main() -> int:
    """Run from the command line: each part in a process of its own, for hypothesis keeps what it has seen."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0, help="the same seed makes the same inputs")
    parser.add_argument("--seconds", type=float, default=None, help="stop after so long all the same")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    console, tally, began = Console(), Tally(), time.monotonic()
    columns = (TextColumn("inputs"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    numbers = [options.seed + 1000 * place for place in range(-(-options.examples // PART))]
    with (
        Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress,
        ProcessPoolExecutor(
            options.jobs, mp_context=get_context("spawn"), max_tasks_per_child=1
        ) as processes,
    ):
        work = progress.add_task("inputs", total=options.examples)
        parts = [processes.submit(_part, number) for number in numbers]
        try:
            for part in as_completed(parts, timeout=options.seconds):
                tally += part.result()
                progress.update(work, completed=tally.codes.total())
        except (TimeoutError, KeyboardInterrupt):
            console.print("stopped before the end")
        finally:
            processes.shutdown(cancel_futures=True)
    show(console, tally, time.monotonic() - began)
    return 0


if __name__ == "__main__":
    sys.exit(main())
