"""The corpus of bad input, as data: what somebody may hand in, and the code of the answer."""

from __future__ import annotations

import base64
import gzip
import json
import pickle
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

ACCEPTED = "accepted"
NIL = "00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True)
class Case:
    """One thing that may be handed in. `code` is the answer's, or `accepted`."""

    name: str
    value: Any
    code: str

    def __str__(self) -> str:
        return self.name


def _nested(depth: int, inside: bytes = b"") -> bytes:
    return b"[" * depth + inside + b"]" * depth


def _object(members: int) -> bytes:
    return b"{" + b",".join(b'"%x":0' % place for place in range(members)) + b"}"


FRAMING = (
    Case("empty", b"", "bad_json"),
    Case("spaces", b"   \r\n\t ", "bad_json"),
    Case("truncated", b'{"a":[1,2', "bad_json"),
    Case("truncated_string", b'{"a":"x', "bad_json"),
    Case("two_documents", b"{}{}", "bad_json"),
    Case("two_lines", b"{}\n{}", "bad_json"),
    Case("text_behind", b"{} x", "bad_json"),
    Case("single_quotes", b"{'a':1}", "bad_json"),
    Case("bare_key", b"{a:1}", "bad_json"),
    Case("trailing_comma", b'{"a":1,}', "bad_json"),
    Case("trailing_comma_in_list", b"[1,]", "bad_json"),
    Case("comment", b"{} // no", "bad_json"),
    Case("python_words", b"True", "bad_json"),
    Case("html", b"<script>alert(1)</script>", "bad_json"),
    Case("bom", b"\xef\xbb\xbf{}", "bad_encoding"),
    Case("utf_16", "{}".encode("utf-16"), "bad_encoding"),
    Case("utf_16_be_without_bom", '{"a":1}'.encode("utf-16-be"), "bad_json"),
    Case("utf_16_le_without_bom", '{"a":1}'.encode("utf-16-le"), "bad_json"),
    Case("utf_32", "{}".encode("utf-32"), "bad_encoding"),
    Case("latin_1", '"é"'.encode("latin-1"), "bad_encoding"),
    Case("byte_ff", b"\xff", "bad_encoding"),
    Case("byte_ff_in_a_string", b'"\xff"', "bad_encoding"),
    Case("overlong_nul", b'"\xc0\x80"', "bad_encoding"),
    Case("overlong_slash", b'"\xe0\x80\xaf"', "bad_encoding"),
    Case("surrogate_in_utf_8", b'"\xed\xa0\x80"', "bad_encoding"),
    Case("beyond_unicode", b'"\xf5\x80\x80\x80"', "bad_encoding"),
    Case("gzip", gzip.compress(b"{}"), "bad_encoding"),
    Case("msgpack", b"\x81\xa4name\x01", "bad_encoding"),
    Case("pickle", pickle.dumps({"a": 1}), "bad_encoding"),
    Case("pickle_protocol_0", pickle.dumps({"a": 1}, protocol=0), "bad_json"),
    Case("base64", base64.b64encode(b"{}"), "bad_json"),
    Case("megabytes_of_spaces", b" " * 1_000_000, "too_large"),
    Case("megabytes_of_spaces_around", b" " * 500_000 + b"{}" + b" " * 500_000, "too_large"),
    Case("no_break_space", "\u00a0{}".encode(), "bad_json"),
    Case("vertical_tab", b"\x0b{}", "bad_json"),
    Case("arabic_digits", "١٢".encode(), "bad_json"),
)

# Good JSON, and no envelope: `strict_json` takes them, the bus does not.
NOT_OBJECTS = (
    Case("null", b"null", ACCEPTED),
    Case("list", b"[]", ACCEPTED),
    Case("number", b"42", ACCEPTED),
    Case("text", b'"cmd.task.execute"', ACCEPTED),
    Case("true", b"true", ACCEPTED),
    Case("empty_object", b"{}", ACCEPTED),
)

TEXTS = (
    Case("nul_in_a_value", rb'{"a":"x\u0000y"}', "bad_string"),
    Case("nul_in_a_key", rb'{"x\u0000":1}', "bad_string"),
    Case("raw_nul", b'{"a":"x\x00y"}', "bad_json"),
    Case("raw_newline", b'{"a":"x\ny"}', "bad_json"),
    Case("lone_high_surrogate", rb'{"a":"\ud800"}', "bad_string"),
    Case("lone_low_surrogate", rb'{"a":"\udfff x"}', "bad_string"),
    Case("surrogates_in_wrong_order", rb'{"a":"\ude00\ud83d"}', "bad_string"),
    Case("lone_surrogate_in_a_key", rb'{"\ud800":1}', "bad_string"),
    Case("half_escape", rb'{"a":"\u12"}', "bad_json"),
    Case("unknown_escape", rb'{"a":"\x41"}', "bad_json"),
    Case("nan", b'{"a":NaN}', "bad_number"),
    Case("infinity", b"[Infinity]", "bad_number"),
    Case("minus_infinity", b"[-Infinity]", "bad_number"),
    Case("1e400", b"[1e400]", "bad_number"),
    Case("minus_1e400", b"[-1e400]", "bad_number"),
    Case("1e131071", b"[1e131071]", "bad_number"),
    Case("many_1e131071", b"[" + b",".join([b"1e131071"] * 500) + b"]", "bad_number"),
    Case("2^63", b"[9223372036854775808]", "bad_number"),
    Case("-2^63-1", b"[-9223372036854775809]", "bad_number"),
    Case("5000_digits", b"1" * 5000, "bad_number"),
    Case("minus_5000_digits", b"-" + b"1" * 5000, "bad_number"),
    Case("5000_digits_and_a_fraction", b"1" * 5000 + b".5", "bad_number"),
    Case("leading_zero", b"[01]", "bad_json"),
    Case("plus", b"[+1]", "bad_json"),
    Case("hexadecimal", b"[0x10]", "bad_json"),
    Case("no_digit_before_the_point", b"[.5]", "bad_json"),
    Case("no_digit_behind_the_point", b"[1.]", "bad_json"),
    Case("duplicate_key", b'{"a":1,"a":1}', "duplicate_key"),
    Case("duplicate_key_deep_down", b'[{"b":{"a":1,"c":2,"a":3}}]', "duplicate_key"),
    Case("duplicate_key_spelt_otherwise", rb'{"a":1,"\u0061":2}', "duplicate_key"),
    Case("depth_65", _nested(65), "too_deep"),
    Case("depth_65_of_objects", b'{"a":' * 64 + b"[]" + b"}" * 64, "too_deep"),
    Case("depth_100000", _nested(100_000), "too_deep"),
    Case("depth_100000_open", b"[" * 100_000, "too_deep"),
    Case("depth_40000_of_objects", b'{"a":' * 40_000, "too_deep"),
    Case("100000_elements", b"[" + b",".join([b"0"] * 100_000) + b"]", "too_many_nodes"),
    Case("10000_elements", b"[" + b",".join([b"0"] * 10_000) + b"]", "too_many_nodes"),
    Case("20000_keys", _object(20_000), "too_many_nodes"),
    Case("100000_keys", _object(100_000), "too_large"),
    Case("string_of_600000_bytes", b'"' + b"x" * 600_000 + b'"', "too_large"),
    Case("string_of_600000_bytes_in_two_byte_characters", f'"{"é" * 300_000}"'.encode(), "too_large"),
    Case("key_of_600000_bytes", b'{"' + b"x" * 600_000 + b'":1}', "too_large"),
)

GOOD_DOCUMENTS = (
    Case("2^53+1", b"[9007199254740993]", ACCEPTED),
    Case("int64_bounds", b"[9223372036854775807,-9223372036854775808]", ACCEPTED),
    Case("empty_key", b'{"":1}', ACCEPTED),
    Case("__proto__", b'{"__proto__":{"admin":true},"constructor":1}', ACCEPTED),
    Case("spaces_around", b" \r\n\t{} \r\n\t", ACCEPTED),
    Case("surrogate_pair", rb'["\ud83d\ude00"]', ACCEPTED),
    Case("controls_escaped", rb'["\u0001\u001f\b\f\n\r\t\u007f\u2028"]', ACCEPTED),
    Case("right_to_left_override", '["\u202egnp.exe"]'.encode(), ACCEPTED),
    Case("depth_64", _nested(64), ACCEPTED),
    Case("10000_nodes", b"[" + b",".join([b"0"] * 9_999) + b"]", ACCEPTED),
    Case("string_of_262000_bytes", b'"' + b"x" * 262_000 + b'"', ACCEPTED),
    Case("string_of_262000_bytes_in_two_byte_characters", f'"{"é" * 131_000}"'.encode(), ACCEPTED),
    Case("key_of_262000_bytes", b'{"' + b"x" * 262_000 + b'":1}', ACCEPTED),
    Case("floats", b"[1e308,-1e308,5e-324,0.1,1e16,1.0,-0.0,1e22,123456789.123456789]", ACCEPTED),
)

DOCUMENTS = FRAMING + NOT_OBJECTS + TEXTS + GOOD_DOCUMENTS

_CYCLE: list[Any] = []
_CYCLE += [_CYCLE, _CYCLE]


def _deep(depth: int) -> list[Any]:
    return [_deep(depth - 1)] if depth > 1 else []


# What only code can hand in: Python values that no JSON text makes.
VALUES = (
    Case("set", {1, 2}, "bad_type"),
    Case("bytes", b"bytes", "bad_type"),
    Case("bytearray", [bytearray(b"x")], "bad_type"),
    Case("decimal", {"a": Decimal("1.5")}, "bad_type"),
    Case("uuid", uuid.UUID(int=1), "bad_type"),
    Case("complex", 1j, "bad_type"),
    Case("object", {"a": object()}, "bad_type"),
    Case("class", int, "bad_type"),
    Case("generator", (one for one in "ab"), "bad_type"),
    Case("int_as_key", {1: "x"}, "bad_type"),
    Case("none_as_key", {"a": {None: 1}}, "bad_type"),
    Case("tuple_as_key", {(1, 2): 1}, "bad_type"),
    Case("float_nan", float("nan"), "bad_number"),
    Case("float_infinity", [float("inf")], "bad_number"),
    Case("int_of_2^63", 2**63, "bad_number"),
    Case("int_of_5000_digits", 10**4999, "bad_number"),
    Case("character_nul", "a\x00b", "bad_string"),
    Case("key_with_nul", {"a\x00": 1}, "bad_string"),
    Case("character_lone_surrogate", "\ud800", "bad_string"),
    Case("list_of_depth_65", _deep(65), "too_deep"),
    Case("list_in_itself", _CYCLE, "too_deep"),
    Case("5_MB_of_text", "x" * 5_000_000, "too_large"),
    Case("5_MB_in_strings", ["x" * 50_000] * 100, "too_large"),
    Case("100000_numbers", [0] * 100_000, "too_many_nodes"),
    Case("tuple", (1, 2), ACCEPTED),
    Case("list_of_depth_64", _deep(64), ACCEPTED),
    Case("none", None, ACCEPTED),
)

# ---------------------------------------------------------------- identifiers

BAD_NAMES = (
    Case("empty", "", ""),
    Case("star", "*", ""),
    Case("greater", ">", ""),
    Case("dot", "a.b", ""),
    Case("dots", "a..b", ""),
    Case("wildcard_inside", "a.*.b", ""),
    Case("space", "a b", ""),
    Case("newline_behind", "a\n", ""),
    Case("crlf", "a\r\nPUB evil 0\r\n\r\n", ""),
    Case("tab", "a\tb", ""),
    Case("nul", "a\x00b", ""),
    Case("right_to_left_override", "a\u202eb", ""),
    Case("letter_of_another_script", "а", ""),  # Cyrillic
    Case("full_width_digit", "１", ""),
    Case("65_characters", "x" * 65, ""),
    Case("5000_characters", "x" * 5000, ""),
    Case("system_subject", "$SYS", ""),
    Case("path", "../../etc/passwd", ""),
    Case("sql", "'; drop table tasks;--", ""),
    Case("html", "<script>", ""),
    Case("percent", "%s%n", ""),
    Case("braces", "{0}", ""),
)

# Strange, and good everywhere: whatever names a task, a type or a workspace may be called so.
GOOD_NAMES = tuple(
    Case(name, name, ACCEPTED)
    for name in (
        "-rf",
        "--help",
        "-",
        "_",
        "0",
        "__proto__",
        "constructor",
        "null",
        "NaN",
        "CON",
        "x" * 64,
        "execute",
    )
)

# ---------------------------------------------------------------- envelopes


def envelope(**changes: Any) -> dict[str, Any]:
    """Return a good command as an object, with fields of one's own; `...` takes a field away."""
    fields = {
        "schema_version": "v1",
        "message_id": str(uuid.uuid4()),
        "trace_id": "tr-8f678c2a",
        "causation_id": None,
        "kind": "cmd.task.execute",
        "emitted_at": "2026-02-06T21:00:00Z",
        "payload": {"task_id": "gr-0", "target_agent_type": "worker", "reason": "new_task"},
    }
    return {name: value for name, value in (fields | changes).items() if value is not ...}


def encoded(document: Mapping[str, Any]) -> bytes:
    """Return an object as it goes on the wire."""
    return json.dumps(document).encode()


def _field(name: str, *values: Any, code: str = "bad_envelope") -> list[Case]:
    return [Case(f"{name}={ascii(value)[:40]}", envelope(**{name: value}), code) for value in values]


_REQUIRED = ("schema_version", "message_id", "trace_id", "kind", "emitted_at", "payload")

ENVELOPES: tuple[Case, ...] = (
    *[Case(f"no_{name}", envelope(**{name: ...}), "bad_envelope") for name in _REQUIRED],
    *[case for name in _REQUIRED for case in _field(name, None)],
    *_field("schema_version", "v0", "v2", 1, "", "V1", "v1 ", ["v1"], {}, code="unknown_version"),
    *_field("message_id", "", 5, True, [], {}, NIL, "nobody", "x" * 5000, "7dc6e5af-0776"),
    *_field("trace_id", "", 5, True, [], {}, "a b", "a\r\nNats-Msg-Id: x", "é", "x" * 129),
    *_field("causation_id", "", 5, True, [], {}, NIL, "nobody"),
    *_field("kind", "", 5, True, [], {}, "cmd", "cmd.task", "cmd.task.*", "cmd.>", "CMD.TASK.EXECUTE"),
    *_field("kind", "cmd.task.execute\n", "cmd..execute", "$SYS.REQ.SERVER", "cmd.task.a.b.c.d", "x" * 5000),
    *_field("emitted_at", "", True, [], {}, "2026-02-06T21:00:00", "2026-02-06", "yesterday", "x" * 5000),
    *_field("emitted_at", "9999-12-31T23:59:59Z", "1969-12-31T23:59:59Z", "0001-01-01T00:00:00Z"),
    *_field("payload", "", "{}", 5, True, [], [{}]),
)  # fmt: skip

# The time is RFC 3339 text: a number is of the wrong type, and so is a number in quotes.
NUMBERS_AS_TIME = tuple(_field("emitted_at", 0, 1_770_000_000, 1.5, "1770000000"))

KINDS_OF_OTHERS = tuple(
    _field(
        "kind", "cmd.task.cancel", "cmd.task.submit", "evt.task.completed", "cmd.agent.worker.execute",
        "dlq.task.dead", "cmd.task.executed", "cmd.task.execute.v1", code="kind_mismatch",
    )
)  # fmt: skip


def command(**changes: Any) -> dict[str, Any]:
    """Return a good command with fields of its payload of one's own."""
    payload = {"task_id": "gr-0", "target_agent_type": "worker", "reason": "new_task"} | changes
    return envelope(payload={name: value for name, value in payload.items() if value is not ...})


def _payload(name: str, *values: Any) -> list[Case]:
    return [Case(f"{name}={ascii(value)[:40]}", command(**{name: value}), "bad_payload") for value in values]


def _names(name: str) -> list[Case]:
    # A text with U+0000 in it does not get as far as the payload's model.
    codes = {"nul": "bad_string"}
    return [
        Case(f"{name}_{case}", command(**{name: case.value}), codes.get(case.name, "bad_payload"))
        for case in BAD_NAMES
    ]


PAYLOADS: tuple[Case, ...] = (
    Case("payload_empty", envelope(payload={}), "bad_payload"),
    Case("no_task_id", command(task_id=...), "bad_payload"),
    Case("no_target_agent_type", command(target_agent_type=...), "bad_payload"),
    *_payload("task_id", None, 5, True, [], {}, ["gr-0"]),
    *_payload("target_agent_type", None, 5, True, [], {}),
    *_payload("reason", None, 5, [], "x" * 65),
    *_names("task_id"),
    *_names("target_agent_type"),
)
# It has the shape of an agent type, and is none.
RESERVED_TYPE = Case("target_agent_type_instance", command(target_agent_type="instance"), "bad_payload")


def messages() -> list[Case]:
    """Return all that is no command: bytes, and the reason of their dead letter."""
    # A message may be a little deeper and fuller than a payload: these are too much only for the latter.
    fits = ("depth_65", "depth_65_of_objects", "10000_elements")
    return [
        *FRAMING,
        *[Case(case.name, case.value, "bad_envelope" if case.name in fits else case.code) for case in TEXTS],
        *[Case(case.name, case.value, "bad_envelope") for case in NOT_OBJECTS],
        *[Case(case.name, encoded(case.value), case.code) for case in ENVELOPES + KINDS_OF_OTHERS + PAYLOADS],
    ]


# ---------------------------------------------------------------- submissions


def _options(name: str, *values: Any) -> list[Case]:
    return [Case(f"{name}={ascii(value)[:40]}", {name: value}, name) for value in values]


# Their code is the word that the error must name.
OPTIONS: tuple[Case, ...] = (
    *_options("priority", 7, 4, -1, 2**31, True, False, 1.0, "1", None, [], float("nan")),
    *_options("max_attempts", -1, 0, 1001, 2**31, 2**63, True, 1.5, "3", []),
    *_options("delay_seconds", -1, -0.001, 31_622_401, float("nan"), float("inf"), "5", None, [], 10**400),
    *_options("idempotency_key", "", "x" * 256, "x" * 10_000, "é", "a\r\nb", "a\x00b", "\ud800", 5, []),
    *_options("trace_id", "", "x" * 129, "a b", "a\r\nb", "a\x00b", "é", "\ud800", 5, []),
    *_options("causation_id", NIL, uuid.UUID(int=0), "nobody", "", 5, []),
    *_options("agent_type", None, 5, [], "instance", *[case.value for case in BAD_NAMES]),
    *_options("task_type", None, 5, [], *[case.value for case in BAD_NAMES]),
)  # fmt: skip

GOOD_OPTIONS: tuple[Case, ...] = (
    *_options("priority", 0, 1, 2, 3),
    *_options("max_attempts", 1, 1000),
    *_options("delay_seconds", 0, 0.001, 31_622_400),
    *_options("idempotency_key", "x" * 255, " ", "~", "'; drop table tasks;--", '"\\', "-rf", "%s{0}"),
    *_options("trace_id", "x" * 128, '"', "\\", "<script>", "-rf", "*.>"),
    *_options("causation_id", uuid.UUID(int=1)),
    *_options("agent_type", *[case.value for case in GOOD_NAMES]),
    *_options("task_type", "instance", *[case.value for case in GOOD_NAMES]),
)

# A payload is a JSON object. What is in it is judged by `strict_json`.
NO_PAYLOADS = tuple(_options("payload", [1], ["ab"], [("a", 1)], "text", b"bytes", 5, 1.5, {1}, True))
EMPTY_PAYLOADS = tuple(_options("payload", [], "", 0, False, set()))
PAYLOADS_WITH = tuple(
    Case(f"payload_with_{case.name}", {"payload": {"a": case.value}}, "payload")
    for case in VALUES
    if case.code != ACCEPTED
)

# ---------------------------------------------------------------- what handlers do


class Unspeakable(Exception):
    """An exception that cannot be shown."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


class UnspeakableTimeout(Unspeakable, TimeoutError):
    """One that is looked at more closely than others."""


class Wordless(Exception):
    """An exception whose text is no text."""

    def __str__(self) -> str:
        return 5  # type: ignore[return-value]


# What handlers return, and cannot be kept.
RESULTS = tuple(
    Case(f"returns_{case.name}", case.value, "bad_result") for case in VALUES if case.code != ACCEPTED
)
# Of these, what is kept where there are blobs.
LONG_RESULTS = frozenset(
    f"returns_{case.name}" for case in VALUES if case.code in {"too_large", "too_many_nodes"}
)
# What handlers raise, and the name under which it is counted.
ERRORS = (
    Case("raises_nul", ValueError("a\x00b"), "ValueError"),
    Case("raises_lone_surrogates", ValueError("\ud800" * 5000), "ValueError"),
    Case("raises_10_MB", ValueError("x" * 10_000_000), "ValueError"),
    Case("raises_bytes", ValueError(b"\xff\x00"), "ValueError"),
    Case("raises_html", ValueError("<script>alert(1)</script>"), "ValueError"),
    Case("raises_unspeakable", Unspeakable(), "Unspeakable"),
    Case("raises_unspeakable_timeout", UnspeakableTimeout(), "UnspeakableTimeout"),
    Case("raises_wordless", Wordless(), "Wordless"),
    Case("raises_long_name", type("X" * 300, (Exception,), {})("x"), "X" * 255),
)
