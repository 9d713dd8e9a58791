"""Dead letters: messages that belong to no task, kept whole."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from grns.errors import RejectedError
from grns.model import subjects
from grns.model.envelope import decode
from grns.postgres.database import Database, Session

# How much of the body, and again of the headers, the event has. The log keeps events for its whole retention
# and has no bound per workspace: with more of each message a flood of rejected messages would fill the disk.
HEAD_BYTES = 4096


@dataclass(frozen=True, slots=True)
class RejectedMessage:
    """A message that could not be accepted, and why."""

    reason: str
    detail: str
    subject: str
    stream: str
    stream_seq: int
    delivery_count: int
    headers: Mapping[str, str]
    body: bytes


async def store_rejected(database: Database | Session, messages: Sequence[RejectedMessage]) -> None:
    """Keep messages in `dead_letters` and log `dlq.message.rejected` for each. Safe to repeat.

    The subject alone decides which workspace a message is filed under: a publisher that has no permission
    for a workspace's subjects adds nothing to its dead letters.
    """
    all_headers = [
        {_text(name): _text(value) for name, value in message.headers.items()} for message in messages
    ]
    origins = [_origin(message) for message in messages]
    await database.run(
        "reject_messages",
        [subjects.owner(message.subject) for message in messages],
        [message.reason for message in messages],
        [_text(message.detail) for message in messages],
        [_text(message.subject) for message in messages],
        [message.stream for message in messages],
        [message.stream_seq for message in messages],
        [message.delivery_count for message in messages],
        [json.dumps(headers) for headers in all_headers],
        [message.body for message in messages],
        [hashlib.sha256(message.body).hexdigest() for message in messages],
        [base64.b64encode(message.body[:HEAD_BYTES]).decode() for message in messages],
        [json.dumps(_head(headers)) for headers in all_headers],
        [trace_id for trace_id, _ in origins],
        [message_id for _, message_id in origins],
    )


def _origin(message: RejectedMessage) -> tuple[str | None, UUID | None]:
    """Return the trace and the id of the envelope, if it is one."""
    try:
        envelope = decode(message.body)
    except RejectedError:
        return None, None
    return envelope.trace_id, envelope.message_id


def _head(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers, from the first on, that fit into the event."""
    head: dict[str, str] = {}
    room = HEAD_BYTES
    for name, value in headers.items():
        room -= len(name.encode()) + len(value.encode())
        if room < 0:
            break
        head[name] = value
    return head


def _text(value: str) -> str:
    """Return text that Postgres can store, whatever a stranger sent."""
    return value.encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")[:2000]
