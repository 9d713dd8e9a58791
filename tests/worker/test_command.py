"""The command to run a task: its quick reading takes what grns writes, and never more than the models."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from random import Random
from uuid import UUID, uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grns.errors import RejectedError
from grns.model import subjects
from grns.model.envelope import assemble
from grns.model.json import Limits
from grns.settings import load
from grns.worker import command
from tests.support.bad_input import (
    ENVELOPES,
    NUMBERS_AS_TIME,
    PAYLOADS,
    RESERVED_TYPE,
    Case,
    encoded,
    messages,
)

PRIORITY_SUBJECT = subjects.priority_subject("default", "worker", 2)
LIMITS = load().envelope_limits
PAYLOAD = (
    '{"task_id" : "gr-1", "target_agent_type" : "worker", "reason" : "new_task"}'  # as Postgres writes it
)


def written(
    *,
    message_id: UUID | None = None,
    trace_id: str = "tr-1",
    causation_id: UUID | None = None,
    emitted_at: datetime = datetime(2026, 2, 6, 21, 0, 0, 123456, tzinfo=UTC),
    payload: str = PAYLOAD,
) -> bytes:
    """Return a command as the relay writes it."""
    return assemble(
        message_id=str(message_id or uuid4()),
        trace_id=trace_id,
        causation_id=None if causation_id is None else str(causation_id),
        kind=subjects.EXECUTE,
        emitted_at=emitted_at,
        payload=payload,
    )


def quickly(
    body: bytes, *, subject: str = PRIORITY_SUBJECT, limits: Limits = LIMITS
) -> command.ExecuteCommand | None:
    return command.read_own(body, subject=subject, limits=limits)


def thoroughly(
    body: bytes, *, subject: str = PRIORITY_SUBJECT, limits: Limits = LIMITS
) -> command.ExecuteCommand | None:
    try:
        return command.read_any(body, subject=subject, limits=limits)
    except RejectedError:
        return None


def test_what_grns_writes_is_read_quickly() -> None:
    message_id = uuid4()
    body = written(message_id=message_id, causation_id=uuid4())
    assert quickly(body) == command.ExecuteCommand(message_id, "gr-1", "worker")
    assert quickly(written(emitted_at=datetime(2028, 2, 29, tzinfo=UTC))), "a time without a fraction"
    assert quickly(body, subject=subjects.shared_execute())


@given(
    trace_id=st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7F), max_size=130),
    message_id=st.uuids(),
    causation_id=st.none() | st.uuids() | st.just(UUID(int=0)),
    emitted_at=st.datetimes(datetime(1970, 1, 1), datetime(9999, 1, 1)),  # noqa: DTZ001 - made aware below
    task_id=st.from_regex(r"[A-Za-z0-9_.-]{0,66}", fullmatch=True),
    agent_type=st.from_regex(r"[A-Za-z0-9_-]{0,66}", fullmatch=True) | st.just("instance"),
    reason=st.sampled_from(["new_task", "", "x" * 65, 'a"b']),
)
def test_the_quick_reading_agrees_with_the_models(
    trace_id: str,
    message_id: UUID,
    causation_id: UUID | None,
    emitted_at: datetime,
    task_id: str,
    agent_type: str,
    reason: str,
) -> None:
    payload = f'{{"task_id" : "{task_id}", "target_agent_type" : "{agent_type}", "reason" : "{reason}"}}'
    body = written(
        message_id=message_id,
        trace_id=trace_id,
        causation_id=causation_id,
        emitted_at=emitted_at.replace(tzinfo=UTC),
        payload=payload,
    )
    said = quickly(body)
    assert said is None or said == thoroughly(body)


PIECES = (
    b'"',
    b"\\",
    b"\\u0000",
    b"\x00",
    b" ",
    b"0",
    b"9",
    b"e",
    b"-",
    b"T",
    b"{",
    b"}",
    b",",
    b"\xff",
    b"\n",
    b"",
)


@settings(max_examples=2000)
@given(st.integers(0, 2**64))
def test_what_is_changed_anywhere_is_read_as_the_models_read_it(seed: int) -> None:
    chance = Random(seed)
    body = written(causation_id=chance.choice([None, uuid4()]))
    for _ in range(chance.randint(1, 2)):
        place = chance.randrange(len(body))
        body = body[:place] + chance.choice(PIECES) + body[place + chance.randint(0, 2) :]
    said = quickly(body)
    assert said is None or said == thoroughly(body)


@pytest.mark.parametrize(
    "wrong", ["2026-02-30T21:00:00", "2026-13-01T21:00:00", "2026-02-06T24:00:00", "2026-02-06T21:60:00"]
)
def test_a_time_that_is_none_is_left_to_the_models(wrong: str) -> None:
    body = re.sub(rb'"emitted_at":"[^"]*"', f'"emitted_at":"{wrong}Z"'.encode(), written())
    assert quickly(body) is None


@pytest.mark.parametrize(
    "subject", ["cmd.task.execute.v2.default.worker.p2", "cmd.task.cancel.v1", "cmd.task.execute.v10"]
)
def test_a_command_on_another_subject_is_left_to_the_models(subject: str) -> None:
    assert quickly(written(), subject=subject) is None


def test_the_limits_hold_for_the_quick_reading_too() -> None:
    body = written()
    for name, least in (("document_bytes", len(body)), ("depth", 2)):
        assert quickly(body, limits=replace(LIMITS, **{name: least}))
        assert quickly(body, limits=replace(LIMITS, **{name: least - 1})) is None
    few = replace(LIMITS, nodes=5)
    assert quickly(body, limits=few) is None
    assert thoroughly(body, limits=few) is None


@pytest.mark.parametrize(
    "case", [*messages(), *ENVELOPES, *NUMBERS_AS_TIME, *PAYLOADS, RESERVED_TYPE], ids=str
)
def test_bad_input_is_never_read_quickly(case: Case) -> None:
    body = case.value if isinstance(case.value, bytes) else encoded(case.value)
    said = quickly(body)
    assert said is None or said == thoroughly(body)


def test_any_other_form_is_read_by_the_models() -> None:
    body = written().replace(b'"schema_version":"v1",', b"").replace(b"{", b'{"schema_version": "v1", ', 1)
    assert quickly(body) is None
    assert command.read_command(body, subject=PRIORITY_SUBJECT, limits=LIMITS).task_id == "gr-1"


def test_a_command_of_another_kind_is_rejected() -> None:
    body = written().replace(b"cmd.task.execute", b"cmd.task.cancel")
    with pytest.raises(RejectedError) as raised:
        command.read_command(body, subject="cmd.task.cancel.v1", limits=LIMITS)
    assert raised.value.code == "unexpected_kind"
