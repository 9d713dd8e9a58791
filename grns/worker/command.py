"""Read execute commands: with one regular expression if the relay wrote them, else with the models.

The relay writes nearly all commands, in one form. The expression matches only messages that the models
would accept with the same result; the models read every other message.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from uuid import UUID

from grns.errors import RejectedError
from grns.model import envelope, subjects
from grns.model import events as payloads
from grns.model.events import TaskExecute
from grns.model.json import Limits
from grns.model.task import uuid_of

_SHARED_SUBJECT = f"{subjects.EXECUTE}.{envelope.SCHEMA_VERSION}"
_OWN_SUBJECTS = f"{_SHARED_SUBJECT}."
_OWN_DEPTH = 2
_UUID = rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_OWN_FORM = re.compile(
    rb'\{"schema_version":"v1","message_id":"(' + _UUID + rb')","trace_id":"[!#-\[\]-~]{1,128}",'
    rb'"causation_id":(?:null|"(?!0{8}-)' + _UUID + rb'"),"kind":"cmd\.task\.execute",'
    rb'"emitted_at":"(2\d{3}-\d\d-\d\dT(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{6})?)Z","payload":'
    rb'\{"task_id" ?: ?"([A-Za-z0-9_-]{1,64})", ?'
    rb'"target_agent_type" ?: ?"(?!instance")([A-Za-z0-9_-]{1,64})", ?'
    rb'"reason" ?: ?"[a-z_]{0,64}"\}\}'
)


@dataclass(slots=True)  # made for each task: frozen ones take five times as long to make
class ExecuteCommand:
    """A command to run a task: its message id, the task and the pool."""

    message_id: UUID
    task_id: str
    agent_type: str


def read_command(body: bytes, *, subject: str, limits: Limits) -> ExecuteCommand:
    """Return the command in `body`.

    Raises: RejectedError: the message is not a valid command. Its codes are those of `envelope.decode` and
    `payloads.read`, and `unexpected_kind`.
    """
    return read_own(body, subject=subject, limits=limits) or read_any(body, subject=subject, limits=limits)


def read_own(body: bytes, *, subject: str, limits: Limits) -> ExecuteCommand | None:
    """Return the command if it has the relay's form, else None (it may still be valid)."""
    match = _OWN_FORM.fullmatch(body)
    if match is None or not (subject.startswith(_OWN_SUBJECTS) or subject == _SHARED_SUBJECT):
        return None
    if limits.depth < _OWN_DEPTH or len(body) > min(limits.document_bytes, limits.nodes):
        return None  # may exceed the limits: each value takes at least one byte
    message_id, emitted_at, task_id, agent_type = match.groups()
    number = int(message_id.replace(b"-", b""), 16)
    if number == 0 or not _is_a_time(emitted_at):
        return None
    return ExecuteCommand(uuid_of(number), task_id.decode(), agent_type.decode())


def read_any(body: bytes, *, subject: str, limits: Limits) -> ExecuteCommand:
    """Return the command in `body`, read with the models. Raises: RejectedError."""
    message = envelope.decode(body, subject=subject, limits=limits)
    payload = payloads.read(message)
    if not isinstance(payload, TaskExecute):
        raise RejectedError("unexpected_kind", f"{message.kind} is not served here")
    return ExecuteCommand(message.message_id, payload.task_id, payload.target_agent_type)


@lru_cache(maxsize=64)  # commands of one submission have the same time
def _is_a_time(text: bytes) -> bool:
    try:
        datetime.fromisoformat(text.decode())
    except ValueError:  # such as February 30
        return False
    return True
