"""Letters: messages that belong to no task, mended and sent again."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from uuid import UUID, uuid5

from grns.errors import InvalidInputError
from grns.model import envelope, subjects
from grns.model import events as payloads
from grns.model.envelope import Envelope
from grns.model.events import TaskCancel, TaskExecute, TaskSignalRequest
from grns.model.json import Limits
from grns.model.submission import Submission

# Headers that grns or the broker acts on: grns alone sets them.
_SET_BY_GRNS = ("nats-", "expected-", "grns-", "traceparent")
_HEADER = re.compile(r"[!-9;-~]{1,64}")
_VALUE = re.compile(r"[ -~]{0,1000}")
_TASK_COMMANDS = (subjects.EXECUTE, *subjects.SERVED)
_AGENT_COMMANDS = "cmd.agent."


@dataclass(frozen=True, slots=True)
class MessagePatch:
    """What is to be otherwise in a message before it is sent again; None leaves it."""

    subject: str | None = None
    headers: Mapping[str, str] | None = None
    body: bytes | None = None


_UNCHANGED = MessagePatch()


@dataclass(frozen=True, slots=True)
class ResentMessage:
    """A message as it is to be sent, under an id that stays the same when that is tried twice."""

    subject: str
    headers: Mapping[str, str]
    body: bytes
    id: str


@dataclass(frozen=True, slots=True)
class DeadMessage:
    """A message that could not be accepted. `state` is `new` until it is sent again or discarded."""

    id: UUID
    workspace: str
    state: str
    reason: str
    detail: str
    subject: str
    stream: str
    stream_seq: int
    delivery_count: int
    headers: dict[str, str]
    body: bytes = field(repr=False)
    body_sha256: str
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class DeadLetterDocument:
    """A rejected message. `body_text` is null if its bytes are not text."""

    id: UUID
    workspace: str
    state: str
    reason: str
    detail: str
    subject: str
    stream: str
    stream_seq: int
    delivery_count: int
    headers: dict[str, str]
    body_base64: str
    body_text: str | None
    body_size: int
    body_sha256: str
    created_at: datetime
    updated_at: datetime


def document(message: DeadMessage) -> DeadLetterDocument:
    """Return a message as programs get it: its body in base64 and, if it is text, as text."""
    values = {name: getattr(message, name) for name in message.__dataclass_fields__ if name != "body"}
    body = message.body
    encoded = base64.b64encode(body).decode()
    return DeadLetterDocument(**values, body_base64=encoded, body_text=text(body), body_size=len(body))


def text(body: bytes) -> str | None:
    """Return the bytes as text, None where they are none."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


def copy(
    dead_letter_id: UUID,
    mend: MessagePatch | None = None,
    *,
    subject: str,
    headers: Mapping[str, str],
    body: bytes,
    workspace: str,
    limits: Limits,
) -> ResentMessage:
    """Return the message to publish for a rejected one, with the changes of `mend`.

    It is a valid command of the message's own workspace: `cmd.task.submit`, `cmd.task.cancel`,
    `cmd.task.signal` or `cmd.task.execute` on its shared subject, or a command to agents (`cmd.agent.…`) on
    the subject that it came on. Only the relay publishes events and on priority subjects: a command from a
    priority subject goes to the shared subject. A request (`req.…`) becomes its command, because its sender
    no longer waits.

    The envelope keeps its `message_id`: it is the same message. `Nats-Msg-Id` is another one, because the
    broker drops an id that it has seen. It stays the same each time that the same copy is sent.

    Raises:
        InvalidInputError: the copy would not be such a command; the code says why.
    """
    change = mend or _UNCHANGED
    target = _target(subject, change.subject, workspace)
    content = body if change.body is None else change.body
    said = envelope.decode(content, subject=target, limits=limits)
    read = payloads.read(said)
    if isinstance(read, Submission) and "workspace" in read.model_fields_set and read.workspace != workspace:
        raise InvalidInputError(
            "bad_submission", f"payload.workspace: the message belongs to workspace {workspace}"
        )
    name = "redrive"
    if change != _UNCHANGED:  # another content is another message: the broker may still hold the first one
        name += " " + sha256(target.encode() + b"\n" + content).hexdigest()
    asked = _checked(headers if change.headers is None else change.headers)
    return ResentMessage(
        target, asked | _set_by_grns(said, read, workspace), content, str(uuid5(dead_letter_id, name))
    )


def _target(kept: str, asked: str | None, workspace: str) -> str:
    """Return the subject for a copy of a message from `kept`; `InvalidInputError('bad_subject')` if there is
    none."""
    origin = subjects.command_of(kept)
    if not origin.startswith(subjects.COMMAND):
        raise InvalidInputError(
            "bad_subject", "only commands can be sent again; try: grns events replay for events of the log"
        )
    if workspace == subjects.UNKNOWN_WORKSPACE or subjects.owner(origin) != workspace:
        raise InvalidInputError(
            "bad_subject", f"{ascii(kept)[:100]} is not a subject of workspace {workspace}"
        )
    wanted = origin if asked is None or asked == kept else asked
    kind = subjects.parse(wanted).kind
    if wanted == origin and kind.startswith(_AGENT_COMMANDS):
        return origin
    shared = subjects.message(kind, workspace)
    if kind in _TASK_COMMANDS and wanted in (origin, shared):
        return shared
    possible = ", ".join(subjects.message(one, workspace) for one in _TASK_COMMANDS)
    raise InvalidInputError(
        "bad_subject", f"a message cannot be sent again on {ascii(wanted)[:100]}; pass one of {possible}"
    )


def _checked(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers that a copy keeps; `InvalidInputError('bad_header')` if one of them cannot be
    sent."""
    kept = {name: value for name, value in headers.items() if not name.lower().startswith(_SET_BY_GRNS)}
    for name, value in kept.items():
        if not _HEADER.fullmatch(name) or not _VALUE.fullmatch(value):
            raise InvalidInputError(
                "bad_header", f"the header {ascii(name)[:70]} has a name or value that none can have"
            )
    return kept


def _set_by_grns(said: Envelope, read: object, workspace: str) -> dict[str, str]:
    trace = envelope.traceparent(said.trace_id, str(said.message_id))
    headers = {"traceparent": trace, "Grns-Workspace": workspace}
    if isinstance(read, TaskExecute | TaskCancel | TaskSignalRequest):
        headers["Grns-Task"] = read.task_id
    return headers
