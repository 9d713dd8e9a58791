"""Orders as they are read: what a message says, what its subject and envelope add, and what is refused."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID, uuid4

import pytest

from grns.errors import InvalidInputError, RejectedError
from grns.gateway import task_command as order
from grns.gateway.task_command import TaskCommand
from grns.model import subjects
from grns.model.events import TaskCancel, TaskSubmit
from grns.model.json import dumps
from grns.settings import load
from tests.fuzz.inputs import bunch
from tests.support.bad_input import (
    ACCEPTED,
    BAD_NAMES,
    GOOD_OPTIONS,
    OPTIONS,
    Case,
    encoded,
    envelope,
    messages,
)
from tests.support.commands import ASK_CANCEL, ASK_SUBMIT, CANCEL, SUBMIT, cancellation, submission

LIMITS = load().envelope_limits


def read(message: dict[str, Any], subject: str = SUBMIT) -> TaskCommand:
    """Read a message as it goes on the wire."""
    return order.read(encoded(message), subject=subject, limits=LIMITS)


def wanted(message: dict[str, Any], subject: str = SUBMIT) -> TaskSubmit:
    """Return the submission that a message asks for."""
    found = read(message, subject).wanted
    assert isinstance(found, TaskSubmit)
    return found


def reason_of(body: bytes, subject: str) -> str:
    """Return why an order is refused, or `accepted`."""
    try:
        order.read(body, subject=subject, limits=LIMITS)
    except RejectedError as error:
        _check_text(str(error))
        return error.code
    return ACCEPTED


def _check_text(text: str) -> None:
    """Whatever was sent: what is answered can be shown anywhere."""
    assert 0 < len(text) < 400
    assert text.isprintable(), ascii(text)


@pytest.mark.parametrize(("command", "request_"), [(SUBMIT, ASK_SUBMIT), (CANCEL, ASK_CANCEL)])
def test_the_same_message_is_a_command_and_a_request(command: str, request_: str) -> None:
    message = submission() if command == SUBMIT else cancellation("gr-1", reason="enough")
    found = read(message, command)
    assert found == read(message, request_)
    assert found.message_id == UUID(message["message_id"])
    assert (found.kind, found.workspace) == (message["kind"], "default")


def test_a_cancellation_is_what_it_says() -> None:
    assert read(cancellation("gr-1", reason="enough"), CANCEL).wanted == TaskCancel(
        task_id="gr-1", reason="enough"
    )


def test_what_a_submission_does_not_say_its_envelope_says() -> None:
    message = submission(payload={"n": 1})
    found = wanted(message)
    assert (found.task_type, found.payload, found.agent_type, found.priority) == (
        "noop",
        {"n": 1},
        "worker",
        2,
    )
    assert found.idempotency_key == message["message_id"]
    assert found.trace_id == message["trace_id"]
    assert found.causation_id == UUID(message["message_id"]), "the task is there because of this message"


def test_what_a_submission_says_itself_counts() -> None:
    causation_id = uuid4()
    found = wanted(submission(idempotency_key="k", trace_id="mine", causation_id=str(causation_id)))
    assert (found.idempotency_key, found.trace_id, found.causation_id) == ("k", "mine", causation_id)


def test_an_id_is_one_key_however_it_is_written() -> None:
    message_id = str(uuid4())
    keys = {
        wanted(submission({"message_id": written})).idempotency_key
        for written in (message_id, message_id.upper(), message_id.replace("-", ""))
    }
    assert keys == {message_id}


def test_an_order_belongs_to_the_workspace_that_its_subject_names() -> None:
    """A permission on the last word of the subject keeps a tenant to its own."""
    for subject in (subjects.message(subjects.SUBMIT, "acme"), subjects.request(subjects.SUBMIT, "acme")):
        assert wanted(submission(), subject).workspace == "acme"
        assert wanted(submission(workspace="acme"), subject).workspace == "acme"
        for other in ("default", "elsewhere"):
            assert reason_of(encoded(submission(workspace=other)), subject) == "bad_submission"
    assert wanted(submission(workspace="default")).workspace == "default"
    assert reason_of(encoded(submission(workspace="acme")), SUBMIT) == "bad_submission"
    assert read(cancellation("gr-1"), f"{CANCEL}.acme").workspace == "acme"


@pytest.mark.parametrize("case", [case for case in BAD_NAMES if "." not in case.value], ids=str)
def test_a_subject_that_names_no_workspace_is_refused(case: Case) -> None:
    """The broker lets anybody publish on whatever fits the wildcard."""
    assert reason_of(encoded(submission()), f"{ASK_SUBMIT}.{case.value}") == "bad_name"


@pytest.mark.parametrize("case", messages(), ids=str)
def test_what_is_no_order_is_refused_with_the_word_of_every_door(case: Case) -> None:
    expected = case.code
    if case.code == "bad_payload":  # of a command that runs a task
        expected = "kind_mismatch"
    elif case.name == "kind='cmd.task.submit'":
        expected = "bad_submission"
    for subject in (SUBMIT, ASK_SUBMIT):
        assert reason_of(case.value, subject) == expected


@pytest.mark.parametrize("kind", ["evt.task.queued", "cmd.task.cancel", "cmd.agent.a.b"])
def test_a_subject_serves_one_kind(kind: str) -> None:
    message = envelope(kind=kind, payload={"task_type": "noop", "task_id": "gr-1"})
    assert reason_of(encoded(message), ASK_SUBMIT) == "kind_mismatch"


def _is_json(value: Any) -> bool:
    try:
        dumps(value)
    except InvalidInputError:  # refused wherever it stands
        return False
    return True


def _as_json(case: Case) -> dict[str, Any]:
    return {name: str(value) if isinstance(value, UUID) else value for name, value in case.value.items()}


@pytest.mark.parametrize(
    "case", [case for case in (*OPTIONS, *GOOD_OPTIONS) if _is_json(_as_json(case))], ids=str
)
def test_options_are_judged_as_at_every_door(case: Case) -> None:
    expected = ACCEPTED if case in GOOD_OPTIONS else "bad_submission"
    assert reason_of(encoded(submission(**_as_json(case))), SUBMIT) == expected


@pytest.mark.parametrize("task_id", [None, 5, True, [], "", "a.b", "x" * 65, "*", "gr-1\n"])
def test_a_cancellation_names_a_task(task_id: Any) -> None:
    assert reason_of(encoded(cancellation(task_id)), CANCEL) == "bad_payload"


def test_what_nobody_can_tell_beforehand_is_read_or_refused() -> None:
    for number in range(3):
        for sample in bunch(number):
            for subject in (SUBMIT, ASK_CANCEL, f"{ASK_SUBMIT}.acme"):
                reason_of(sample.body, subject)


def test_what_is_not_known_of_a_submission_is_ignored() -> None:
    """Later versions may have more fields; those of a task are never taken from a message."""
    found = wanted(submission(status="succeeded", attempt=99, id="gr-mine", max_attempt=3))
    assert found == wanted(submission({"message_id": found.idempotency_key}))


def test_a_message_as_large_as_a_payload_may_be_is_read() -> None:
    message = submission(payload={"text": "x" * 256 * 1024})
    assert reason_of(encoded(message), SUBMIT) == ACCEPTED, "the payload itself is judged by its own limit"
    message = submission(payload={"text": "x" * 512 * 1024})
    assert reason_of(json.dumps(message).encode(), SUBMIT) == "too_large"
