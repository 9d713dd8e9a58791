"""What must hold of an input, in every way in which grns reads messages."""

from __future__ import annotations

from uuid import UUID

from grns.errors import RejectedError
from grns.model import envelope, subjects
from grns.model import events as payloads
from grns.settings import load
from grns.worker import command
from tests.fuzz.inputs import Sample
from tests.support.bad_input import ACCEPTED

LIMITS = load().envelope_limits
LONGEST_REFUSAL = 400
CODES = {
    "bad_encoding", "bad_envelope", "bad_json", "bad_number", "bad_payload", "bad_string", "bad_subject",
    "duplicate_key", "kind_mismatch", "too_deep", "too_large", "too_many_nodes", "unexpected_kind",
    "unknown_kind", "unknown_version",
}  # fmt: skip
# What is refused with these is an envelope all the same.
_AN_ENVELOPE = {ACCEPTED, "bad_payload", "unknown_kind", "unexpected_kind", "kind_mismatch", "bad_subject"}


def judge(sample: Sample) -> str:
    """Read one input in every way; return the code of its refusal as a command, or `accepted`."""
    answer = _command(sample)
    quick = command.read_own(sample.body, subject=sample.subject, limits=LIMITS)
    assert quick is None or quick == answer, "the fast reader agrees with the models"
    _is_plain(answer)
    code = answer.code if isinstance(answer, RejectedError) else ACCEPTED
    if code in _AN_ENVELOPE:
        _judge_envelope(sample.body)
    if not isinstance(answer, RejectedError):
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
    except RejectedError as error:
        return error.with_traceback(None)


def _command(sample: Sample) -> command.ExecuteCommand | RejectedError:
    try:
        return command.read_any(sample.body, subject=sample.subject, limits=LIMITS)
    except RejectedError as error:
        return error.with_traceback(None)


def _is_plain(answer: object) -> None:
    """Check that a refusal has a known code and a text that can be shown anywhere."""
    if isinstance(answer, RejectedError):
        assert answer.code in CODES, answer.code
        assert 0 < len(str(answer)) <= LONGEST_REFUSAL, str(answer)
        assert str(answer).isprintable(), ascii(str(answer))
