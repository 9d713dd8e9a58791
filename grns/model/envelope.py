"""The envelope: the form of every command, event and dead letter on the wire."""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal
from uuid import UUID

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
)

from grns.errors import InvalidInputError, RejectedError
from grns.model import subjects
from grns.model.json import Limits, parse

if TYPE_CHECKING:
    from grns.model.secret import Scrubber

SCHEMA_VERSION: Literal["v1"] = "v1"
ENVELOPE_LIMITS = Limits(document_bytes=512 * 1024, nodes=10_100)


def _not_nil(value: UUID) -> UUID:
    if value.int == 0:
        raise ValueError("the nil UUID names no message")
    return value


def _text_of_time(value: object) -> object:
    # pydantic accepts numbers as seconds since 1970; the wire has RFC 3339 only
    if isinstance(value, datetime) or (isinstance(value, str) and "T" in value.upper()):
        return value
    raise ValueError("a time is RFC 3339 text, as 2026-02-06T21:00:00Z")


MessageId = Annotated[UUID, AfterValidator(_not_nil)]
TraceId = Annotated[str, Field(pattern=r"^[!-~]{1,128}$")]
Kind = Annotated[str, Field(pattern=r"^(cmd|evt|dlq)(\.[A-Za-z0-9_-]{1,64}){2,4}$")]
Instant = Annotated[
    AwareDatetime,
    Field(ge=datetime(1970, 1, 1, tzinfo=UTC), le=datetime(9998, 12, 31, tzinfo=UTC)),
    BeforeValidator(_text_of_time),
]


class Envelope(BaseModel):
    """One message.

    `message_id` is unique per logical message and stable when the same message is sent
    again; `causation_id` is the message that led to this one; `trace_id` is the same for
    everything about one task. Unknown fields are ignored.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    schema_version: Literal["v1"] = SCHEMA_VERSION
    message_id: MessageId
    trace_id: TraceId
    causation_id: MessageId | None = None
    kind: Kind
    emitted_at: Instant
    payload: dict[str, Any]


def decode(body: bytes, *, subject: str | None = None, limits: Limits = ENVELOPE_LIMITS) -> Envelope:
    """Return the envelope in `body`.

    Raises:
        RejectedError: with the codes of `json.parse`, `unknown_version`, `bad_envelope`, and `kind_mismatch`
            if `subject` names another kind or version than the body.
    """
    try:
        document = parse(body, limits)
    except InvalidInputError as error:
        raise RejectedError(error.code, str(error)) from error
    if not isinstance(document, dict):
        raise RejectedError("bad_envelope", "an envelope is a JSON object")
    version = document.get("schema_version")
    if version is not None and version != SCHEMA_VERSION:
        raise RejectedError("unknown_version", f"schema_version {ascii(version)[:40]} is not known here")
    try:
        envelope = Envelope.model_validate(document)
    except ValidationError as error:
        raise RejectedError("bad_envelope", first_problem(error)) from error
    if "schema_version" not in document:
        raise RejectedError("bad_envelope", "schema_version: Field required")
    if subject is not None:
        _check_subject(envelope, subject)
    return envelope


def encode(envelope: Envelope) -> bytes:
    """Return the envelope as bytes."""
    return envelope.model_dump_json().encode()


# Of each kind the last instant and its text: rows of one statement have the same time.
_latest: dict[str, tuple[datetime, str]] = {}
_NONE = (datetime.fromtimestamp(0, UTC), "1970-01-01T00:00:00Z")


def assemble(
    *,
    message_id: str,
    trace_id: str,
    causation_id: str | None,
    kind: str,
    emitted_at: datetime,
    payload: str,
) -> bytes:
    """Return an envelope around a payload that is JSON text, without parsing it.

    The fields are not checked: they come from the event log, which has checked them.
    """
    known, time = _latest.get(kind, _NONE)
    if emitted_at != known:
        time = rfc3339(emitted_at)
        _latest[kind] = (emitted_at, time)
    causation = "null" if causation_id is None else f'"{causation_id}"'
    trace = trace_id
    if not trace.isalnum():
        trace = trace.replace("\\", "\\\\").replace('"', '\\"')
    return (
        f'{{"schema_version":"{SCHEMA_VERSION}","message_id":"{message_id}","trace_id":"{trace}",'
        f'"causation_id":{causation},"kind":"{kind}","emitted_at":"{time}","payload":{payload}}}'
    ).encode()


_W3C_TRACE = re.compile(r"(?!0{32})[0-9a-f]{32}\Z")
_TRACEPARENT = re.compile(
    r"(?!ff)[0-9a-f]{2}-((?!0{32})[0-9a-f]{32})-((?!0{16})[0-9a-f]{16})-[0-9a-f]{2}(-.*)?\Z"
)


def traceparent(trace_id: str, message_id: str) -> str:
    """Return the W3C trace header of a message: its task's trace, and the span in which it was published."""
    return f"00-{w3c_trace(trace_id)}-{message_span(message_id)}-01"


def w3c_trace(trace_id: str) -> str:
    """Return the W3C trace id: an id of 32 hex digits unchanged, the digest of any other."""
    return trace_id if _W3C_TRACE.match(trace_id) else hashlib.sha256(trace_id.encode()).hexdigest()[:32]


def message_span(message_id: str) -> str:
    """Return the id of the span in which a message is published: ids differ at their end."""
    return message_id[19:23] + message_id[24:]


def read_traceparent(header: str) -> tuple[str, str] | None:
    """Return trace and span of a W3C trace header; None if it is invalid."""
    found = _TRACEPARENT.match(header)
    return (found[1], found[2]) if found else None


def rfc3339(instant: datetime) -> str:
    """Return `instant` in UTC as RFC 3339 with a `Z`."""
    return (instant if instant.tzinfo is UTC else instant.astimezone(UTC)).isoformat()[:-6] + "Z"


_CLEARER = {
    "dict_type": 'pass one object, such as {"number": 1}',
    "timezone_aware": "a time needs its time zone, such as 2026-01-31T09:00:00Z, in Python datetime.now(UTC)",
}


def first_problem(error: ValidationError, scrubber: Scrubber | None = None) -> str:
    """Return the first error as `field: problem`, without values, and without secrets."""
    detail = error.errors(include_url=False, include_input=False, include_context=False)[0]
    field = ".".join(str(part) for part in detail["loc"]) or "document"
    problem = _CLEARER.get(detail["type"], detail["msg"].removeprefix("Value error, "))
    if scrubber is not None:
        field, problem = scrubber.text(field), scrubber.text(problem)
    return f"{ascii(field)[1:-1][:100]}: {_printable(problem)[:200]}"


def _printable(text: str) -> str:
    # pydantic names the character that does not fit, which may be a control character
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def _check_subject(envelope: Envelope, subject: str) -> None:
    if f"{subject}.".startswith(f"{envelope.kind}.{envelope.schema_version}."):
        return
    try:
        parsed = subjects.parse(subject)
    except InvalidInputError as error:
        raise RejectedError(error.code, str(error)) from error
    if (parsed.kind, parsed.version) != (envelope.kind, envelope.schema_version):
        raise RejectedError("kind_mismatch", "the subject names another kind than the envelope")
