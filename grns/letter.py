"""Letters: messages that belong to no task, mended and sent again."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from uuid import UUID, uuid5

from grns import envelope, payloads, subjects
from grns.errors import BadInput
from grns.strict_json import Limits
from grns.submission import Submission

# What the broker itself acts on: a copy with these would be refused, dropped or sent elsewhere.
_CONTROL = ("nats-", "expected-")
_HEADER = re.compile(r"[!-9;-~]{1,64}")
_VALUE = re.compile(r"[ -~]{0,1000}")


@dataclass(frozen=True, slots=True)
class Mend:
    """What is to be otherwise in a message before it is sent again; None leaves it."""

    subject: str | None = None
    headers: Mapping[str, str] | None = None
    body: bytes | None = None


@dataclass(frozen=True, slots=True)
class Copy:
    """A message as it is to be sent, under an id that stays the same when that is tried twice."""

    subject: str
    headers: Mapping[str, str]
    body: bytes
    id: str


def document(kept: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message as programs get it: its body as bytes, and as text where it is some."""
    body: bytes = kept["body"]
    record = {name: value for name, value in kept.items() if name != "body"}
    return record | {"body_base64": body, "body_text": text(body), "body_size": len(body)}


def text(body: bytes) -> str | None:
    """Return the bytes as text, None where they are none."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


def copy(letter_id: UUID, *, subject: str, headers: Mapping[str, str], body: bytes) -> Copy:
    """Return the message to send, as it was, without the headers that the broker itself acts on.

    The envelope inside keeps its own `message_id`: it is the same message. The broker's `Nats-Msg-Id` has
    to be another one, because an id that came within the stream's window stores nothing, even where the
    first copy is long gone: it would be answered as a duplicate, and lost. A request that nobody waits for
    is sent as the command that it stands for.
    """
    return Copy(subjects.command_of(subject), _harmless(headers), body, str(uuid5(letter_id, "redrive")))


def mended(
    letter_id: UUID,
    mend: Mend,
    *,
    subject: str,
    headers: Mapping[str, str],
    body: bytes,
    workspace: str,
    limits: Limits,
) -> Copy:
    """Return the message to send, as it is to be; `BadInput` where nobody could accept that either."""
    wanted = Copy(
        subject=subjects.command_of(subject) if mend.subject is None else mend.subject,
        headers=_harmless(headers if mend.headers is None else mend.headers),
        body=body if mend.body is None else mend.body,
        id="",
    )
    _check(wanted, workspace, limits)
    # Another content is another message: the broker may hold a copy of the first one still.
    content = sha256(wanted.subject.encode() + b"\n" + wanted.body).hexdigest()
    return Copy(wanted.subject, wanted.headers, wanted.body, str(uuid5(letter_id, f"redrive {content}")))


def _check(wanted: Copy, workspace: str, limits: Limits) -> None:
    for name, value in wanted.headers.items():
        if not _HEADER.fullmatch(name) or not _VALUE.fullmatch(value):
            raise BadInput(
                "bad_header", f"the header {ascii(name)[:70]} has a name or value that none can have"
            )
    said = subjects.parse(wanted.subject)
    for word in said.routing:
        subjects.token(word, name="a word of the subject")
    if (said.routing or (subjects.DEFAULT_WORKSPACE,))[0] != workspace:
        raise BadInput("bad_subject", f"{ascii(wanted.subject)[:100]} is none of workspace {workspace}")
    read = payloads.read(envelope.decode(wanted.body, subject=wanted.subject, limits=limits))
    if isinstance(read, Submission) and read.workspace != workspace:
        raise BadInput("bad_submission", f"workspace: the message belongs to {workspace}")


def _harmless(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if not name.lower().startswith(_CONTROL)}
