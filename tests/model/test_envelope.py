"""The envelope: what is accepted, what is refused and why, and that what grns sends can be read."""

from __future__ import annotations

import base64
import json
import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grns.dead_letters.store import HEAD_BYTES
from grns.errors import RejectedError
from grns.model import events as payloads
from grns.model import subjects
from grns.model.envelope import Envelope, assemble, decode, encode, read_traceparent, rfc3339, traceparent
from grns.model.events import PAYLOADS, MessageRejected, TaskExecute, model_of, read
from grns.settings import load
from tests.support import bad_input
from tests.support.bad_input import (
    ENVELOPES,
    KINDS_OF_OTHERS,
    NUMBERS_AS_TIME,
    RESERVED_TYPE,
    Case,
    command,
    encoded,
    envelope,
    messages,
)

FRONT_DOOR = subjects.shared_execute()
LIMITS = load().envelope_limits
NOW = datetime(2026, 2, 6, 21, 0, 0, 123456, tzinfo=UTC)


def reason_of(body: bytes, subject: str | None = FRONT_DOOR) -> str:
    """Return why a message is rejected, or `accepted`. Anything but a `RejectedError` is a failure."""
    try:
        read(decode(body, subject=subject, limits=LIMITS))
    except RejectedError as error:
        refusal = error
    else:
        return "accepted"
    assert 0 < len(str(refusal)) < 400, "a refusal says why, and does not echo what was sent"
    return refusal.code


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize("case", messages(), ids=str)
def test_what_is_no_command_is_rejected(case: Case) -> None:
    assert reason_of(case.value) == case.code


@pytest.mark.parametrize("case", ENVELOPES + NUMBERS_AS_TIME, ids=str)
def test_each_field_is_checked(case: Case) -> None:
    """Without a subject to compare with, too."""
    assert reason_of(encoded(case.value), None) == case.code


@pytest.mark.parametrize("case", bad_input.PAYLOADS, ids=str)
def test_each_field_of_a_payload_is_checked(case: Case) -> None:
    assert reason_of(encoded(case.value)) == case.code


def test_a_reserved_agent_type_is_rejected_like_any_other() -> None:
    """What is not `RejectedError` ends in no dead letter, and the message comes again for ever."""
    assert reason_of(encoded(RESERVED_TYPE.value)) == RESERVED_TYPE.code


@pytest.mark.parametrize("kind", ["cmd.task.submit", "cmd.task.cancel"])
@pytest.mark.parametrize("agent", ["instance", "a.b", "", 5, None])
def test_a_submission_from_the_bus_is_checked(kind: str, agent: Any) -> None:
    """None of its fields raises anything but `RejectedError`."""
    said = {"task_type": "noop", "agent_type": agent, "task_id": "a.b"}
    assert reason_of(encoded(envelope(kind=kind, payload=said)), None) == "bad_payload"


def test_the_message_names_the_field() -> None:
    for name in ("message_id", "trace_id", "causation_id", "kind", "emitted_at", "payload"):
        with pytest.raises(RejectedError, match=name):
            decode(encoded(envelope(**{name: [True]})))
    with pytest.raises(RejectedError, match=r"payload\.task_id"):
        read(decode(encoded(command(task_id="a.b"))))


def test_values_are_not_echoed() -> None:
    secret = "hunter2" * 20
    for case in (envelope(trace_id=secret + " "), command(task_id=secret + "."), envelope(kind=secret)):
        with pytest.raises(RejectedError) as raised:
            read(decode(encoded(case)))
        assert "hunter2" not in str(raised.value)


def test_the_version_is_judged_first() -> None:
    """A message of a later version is not blamed for what is new in it."""
    assert reason_of(b'{"schema_version":"v2","id":1}') == "unknown_version"


def test_the_size_of_a_message_is_bounded() -> None:
    document = encoded(command())
    body = document[:-1] + b" " * (LIMITS.document_bytes - len(document)) + b"}"
    assert len(body) == 512 * 1024
    assert reason_of(body) == "accepted"
    assert reason_of(body + b" ") == "too_large"


# ---------------------------------------------------------------- what is accepted


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"causation_id": ...},
        {"causation_id": str(uuid4())},
        {"emitted_at": "2026-02-06T21:00:00.123456Z"},
        {"emitted_at": "2026-02-06T23:00:00+02:00"},
        {"emitted_at": "1970-01-01T00:00:00Z"},
        {"emitted_at": "9998-12-30T00:00:00Z"},
        {"trace_id": "x" * 128},
        {"trace_id": '"\\{}<>'},
        {"status": "succeeded", "attempt": 7, "owner_agent_id": "me", "lease_until": "2099-01-01T00:00:00Z"},
        {"__proto__": {"kind": "x"}, "": 1},
    ],
    ids=lambda changes: ",".join(changes) or "plain",
)
def test_a_good_envelope_is_accepted(changes: dict[str, Any]) -> None:
    document = envelope(**changes)
    said = decode(encoded(document), subject=FRONT_DOOR)
    assert isinstance(read(said), TaskExecute)
    assert str(said.message_id) == document["message_id"]
    assert said.trace_id == document["trace_id"]
    assert said.emitted_at == datetime.fromisoformat(document["emitted_at"])
    assert set(said.model_dump()) == {
        "schema_version", "message_id", "trace_id", "causation_id", "kind", "emitted_at", "payload",
    }  # fmt: skip


def test_extra_fields_of_a_payload_are_ignored() -> None:
    liar = command(status="succeeded", attempt=99, owner_agent_id="me", max_attempts=10**6, reason="because")
    said = read(decode(encoded(liar)))
    assert said.model_dump() == {"task_id": "gr-0", "target_agent_type": "worker", "reason": "because"}


def test_encode_and_decode_agree() -> None:
    said = decode(encoded(envelope(payload={"task_id": "é\u2028", "n": [2**53 + 1, 0.1, -(2**63)]})))
    assert decode(encode(said)) == said


# ---------------------------------------------------------------- subjects and kinds


@pytest.mark.parametrize("case", KINDS_OF_OTHERS, ids=str)
def test_a_kind_that_is_not_the_subjects_is_rejected(case: Case) -> None:
    assert reason_of(encoded(case.value), FRONT_DOOR) == "kind_mismatch"


@pytest.mark.parametrize(
    ("subject", "code"),
    [
        (FRONT_DOOR, "accepted"),
        (subjects.shared_execute("tenant"), "accepted"),
        (subjects.priority_subject("default", "worker", 0), "accepted"),
        (subjects.priority_subject("v2", "v3", 0), "accepted"),
        ("cmd.task.execute.v2", "kind_mismatch"),
        ("cmd.task.execute.v10", "kind_mismatch"),
        ("cmd.task.execute", "bad_subject"),
        ("cmd.task.execute.v1x", "bad_subject"),
        ("cmd.task", "bad_subject"),
        ("", "bad_subject"),
        ("cmd.task.cancel.v1", "kind_mismatch"),
        ("x.cmd.task.execute.v1", "kind_mismatch"),
    ],
)
def test_the_subject_has_to_name_the_kind_and_its_version(subject: str, code: str) -> None:
    assert reason_of(encoded(command()), subject) == code


@pytest.mark.parametrize("kind", ["evt.agent.v1.done", "evt.agent.scout.v2", "cmd.agent.v3.v4"])
def test_names_that_look_like_versions_are_names(kind: str) -> None:
    assert reason_of(encoded(envelope(kind=kind)), f"{kind}.v1") == "accepted"
    assert reason_of(encoded(envelope(kind=kind)), f"{kind}.v1.tenant") == "accepted"


@pytest.mark.parametrize(
    "kind",
    ["cmd.task.run", "evt.task.exploded", "evt.agent.a", "cmd.agent", "evt.job.done", "dlq.task.lost"],
)
def test_an_unknown_kind_is_rejected(kind: str) -> None:
    with pytest.raises(RejectedError) as raised:
        model_of(kind)
    assert raised.value.code == "unknown_kind"


def test_free_kinds_have_models() -> None:
    assert model_of("cmd.agent.scout.look") is payloads.AgentCommand
    assert model_of("cmd.agent.instance.scout-7") is payloads.MailboxCommand
    assert model_of("evt.agent.scout.seen") is payloads.AgentEvent
    for kind, model in PAYLOADS.items():
        assert model_of(kind) is model
    assert reason_of(encoded(envelope(kind="cmd.agent.instance.x", payload={})), None) == "bad_payload"


@pytest.mark.parametrize("letter", ["\x1b", "\x85", "\u202e", "\n"], ids=ascii)
def test_a_refusal_can_be_shown_anywhere(letter: str) -> None:
    """Also where the model's own words name the character that is wrong."""
    for changed in ({"message_id": f"{letter}7dc6e5af"}, {"causation_id": letter}, {letter: 1, "kind": ""}):
        with pytest.raises(RejectedError) as raised:
            decode(encoded(envelope(**changed)))
        assert str(raised.value).isprintable(), changed


# ---------------------------------------------------------------- what grns sends

hostile_traces = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=128)
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | texts,
    lambda inside: st.lists(inside) | st.dictionaries(texts, inside),
    max_leaves=6,
)
hostile_examples = ['"', "\\", '\\"', '","kind":"evil', "\\u0000", "</script>", "\\\\"]


@given(
    trace_id=hostile_traces | st.sampled_from(hostile_examples),
    message_id=st.uuids(),
    causation_id=st.none() | st.uuids(),
    emitted_at=st.datetimes(datetime(1970, 1, 2), datetime(9998, 12, 29)),  # noqa: DTZ001 - made aware below
    hours=st.integers(-14, 14),
    payload=st.dictionaries(st.sampled_from(["task_id", "a", "", "é"]), json_values),
)
def test_what_assemble_writes_decode_reads(
    trace_id: str, message_id: UUID, causation_id: UUID | None, emitted_at: datetime, hours: int, payload: Any
) -> None:
    instant = emitted_at.replace(tzinfo=timezone(timedelta(hours=hours)))
    body = assemble(
        message_id=str(message_id),
        trace_id=trace_id,
        causation_id=None if causation_id is None else str(causation_id),
        kind="evt.agent.scout.seen",
        emitted_at=instant,
        payload=json.dumps(payload, ensure_ascii=False),
    )
    assert decode(body) == Envelope(
        message_id=message_id,
        trace_id=trace_id,
        causation_id=causation_id,
        kind="evt.agent.scout.seen",
        emitted_at=instant,
        payload=payload,
    )
    assert json.loads(body)["emitted_at"].endswith("Z")


def test_times_are_written_in_utc() -> None:
    assert rfc3339(NOW) == "2026-02-06T21:00:00.123456Z"
    assert rfc3339(NOW.replace(microsecond=0)) == "2026-02-06T21:00:00Z"
    assert rfc3339(NOW.astimezone(timezone(timedelta(hours=5, minutes=30)))) == "2026-02-06T21:00:00.123456Z"
    assert rfc3339(NOW.replace(tzinfo=timezone.utc)) == "2026-02-06T21:00:00.123456Z"  # noqa: UP017


@given(hostile_traces, st.uuids(version=4))
def test_traceparent_is_what_w3c_says(trace_id: str, message_id: UUID) -> None:
    header = traceparent(trace_id, str(message_id))
    assert re.fullmatch(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-01", header)
    assert header == traceparent(trace_id, str(message_id))


def test_a_w3c_trace_id_is_kept() -> None:
    identity, trace = uuid4(), "4bf92f3577b34da6a3ce929d0e0e4736"
    assert traceparent(trace, str(identity)) == f"00-{trace}-{identity.hex[16:]}-01"
    others = ("0" * 32, trace.upper(), trace + "0", trace[:-1], trace + "\n", "x" * 32)
    made = {traceparent(other, str(identity))[3:35] for other in others}
    assert len(made) == len(others)
    assert not made & {trace, "0" * 32}


def test_messages_of_one_statement_have_spans_of_their_own() -> None:
    """Their ids differ in the last digits only: see grns.message_id."""
    batch = str(uuid4())[:28]
    spans = {traceparent("t", f"{batch}{place:08x}")[36:52] for place in range(1, 100)}
    assert len(spans) == 99


@given(hostile_traces, st.uuids(version=4))
def test_a_traceparent_is_read_as_it_was_made(trace_id: str, message_id: UUID) -> None:
    header = traceparent(trace_id, str(message_id))
    assert read_traceparent(header) == (header[3:35], header[36:52])


@pytest.mark.parametrize(
    "header",
    [
        "", "00", "x" * 55, "00-" + "0" * 32 + "-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-" + "0" * 16 + "-01",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
        "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\n",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
    ],
)  # fmt: skip
def test_what_is_no_traceparent_is_none(header: str) -> None:
    assert read_traceparent(header) is None


def test_a_traceparent_of_a_later_version_is_read_as_far_as_it_is_known() -> None:
    later = "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what-comes"
    assert read_traceparent(later) == ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7")


def test_the_largest_rejected_message_can_be_told() -> None:
    """Its first bytes are one text in base64."""
    payload = {
        "reason": "too_large", "subject": FRONT_DOOR, "headers": {}, "body_size": 900_000,
        "body_base64": base64.b64encode(b"x" * HEAD_BYTES).decode(), "body_sha256": "0" * 64,
    }  # fmt: skip
    said = read(decode(encoded(envelope(kind="dlq.message.rejected", payload=payload)), limits=LIMITS))
    assert isinstance(said, MessageRejected)
    assert len(base64.b64decode(said.body_base64)) == HEAD_BYTES
