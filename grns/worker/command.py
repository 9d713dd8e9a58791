"""The command to run a task, as a worker reads it: quickly where grns itself wrote it, else by the models.

Nearly all commands come from the relay, which writes them in one form. One expression
reads that form, and takes nothing that the models would refuse or read otherwise;
what it does not take, they judge.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from grns.errors import RejectedError
from grns.model import envelope, subjects
from grns.model import events as payloads
from grns.model.events import TaskExecute
from grns.model.json import Limits
from grns.model.task import uuid_of

_FRONT_DOOR = f"{subjects.EXECUTE}.{envelope.SCHEMA_VERSION}"
_OWN_SUBJECTS = f"{_FRONT_DOOR}."
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
    """What a command to run a task says: its own id, the task, and whom it is meant for."""

    message_id: UUID
    task_id: str
    agent_type: str


def read(body: bytes, *, subject: str, limits: Limits) -> ExecuteCommand:
    """Return the command in `body`; `RejectedError` says why it cannot be accepted.

    Codes: those of `envelope.decode` and `payloads.read`, and `unexpected_kind`.
    """
    return read_own(body, subject=subject, limits=limits) or read_any(body, subject=subject, limits=limits)


def read_own(body: bytes, *, subject: str, limits: Limits) -> ExecuteCommand | None:
    """Return the command if it has the form in which grns writes it; None says nothing of it."""
    said = _OWN_FORM.fullmatch(body)
    if said is None or not (subject.startswith(_OWN_SUBJECTS) or subject == _FRONT_DOOR):
        return None
    if limits.depth < _OWN_DEPTH or len(body) > min(limits.document_bytes, limits.nodes):
        return None  # too long to be sure that it keeps within them: each value takes a byte
    message_id, emitted_at, task_id, agent_type = said.groups()
    number = int(message_id.replace(b"-", b""), 16)
    if number == 0 or not _is_a_time(emitted_at.decode()):
        return None
    return ExecuteCommand(uuid_of(number), task_id.decode(), agent_type.decode())


def read_any(body: bytes, *, subject: str, limits: Limits) -> ExecuteCommand:
    """Return the command in `body` as the models read it, or raise `RejectedError`."""
    said = envelope.decode(body, subject=subject, limits=limits)
    wanted = payloads.read(said)
    if not isinstance(wanted, TaskExecute):
        raise RejectedError("unexpected_kind", f"{said.kind} is not served here")
    return ExecuteCommand(said.message_id, wanted.task_id, wanted.target_agent_type)


def _is_a_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:  # as the 30th of February
        return False
    return True
