"""An order: a task to create, to cancel or to signal, or mail to an agent, as others ask for it over the bus.

The message is the same whether it is sent as a command, on a subject of the stream, or as a request, on one
that is answered: its `message_id` says which one it is, and each is carried out once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from grns.errors import InvalidInputError, RejectedError
from grns.model import envelope, subjects
from grns.model import events as payloads
from grns.model.envelope import Envelope
from grns.model.events import AgentCommand, MailboxCommand, TaskCancel, TaskSignalRequest, TaskSubmit
from grns.model.json import Limits


@dataclass(frozen=True, slots=True)
class MailOrder:
    """Mail to one agent."""

    agent: str
    type: str
    payload: dict[str, Any]


@dataclass(frozen=True, slots=True)
class TaskCommand:
    """A command or request: its own id, the kind, the workspace that its subject names, and what it asks."""

    message_id: UUID
    kind: str
    workspace: str
    wanted: TaskSubmit | TaskCancel | TaskSignalRequest | MailOrder


def read(body: bytes, *, subject: str, limits: Limits) -> TaskCommand:
    """Return the order in `body`; `RejectedError` says why it cannot be accepted.

    Codes: those of `envelope.decode` and `payloads.read` (of a submission `bad_submission`, as at every
    door), `bad_name` where the subject names what can be no workspace, and `unexpected_kind`.
    """
    command = subjects.command_of(subject)
    said = envelope.decode(body, subject=command, limits=limits)
    workspace = _workspace(command)
    wanted = _payload(said)
    if isinstance(wanted, AgentCommand):
        wanted = _asked_of_agents(said, wanted)
    if isinstance(wanted, TaskSubmit):
        return TaskCommand(said.message_id, said.kind, workspace, _completed(wanted, said, workspace))
    if isinstance(wanted, TaskCancel | TaskSignalRequest | MailOrder):
        return TaskCommand(said.message_id, said.kind, workspace, wanted)
    raise RejectedError("unexpected_kind", f"{said.kind} is not served here")


def _asked_of_agents(said: Envelope, wanted: AgentCommand) -> TaskSubmit | MailOrder:
    """Return what a command to agents is: to any of a type a task of that pool, to one of them mail."""
    _, _, name, action = said.kind.split(".")
    payload = wanted.model_dump(mode="json")
    if isinstance(wanted, MailboxCommand):
        return MailOrder(action, payload.pop("action"), payload)
    return TaskSubmit(task_type=action, agent_type=name, payload=payload)


def _workspace(subject: str) -> str:
    try:
        return subjects.workspace_of(subject)
    except InvalidInputError as error:
        raise RejectedError(error.code, str(error)) from error


def _payload(said: Envelope) -> object:
    try:
        return payloads.read(said)
    except RejectedError as error:
        if said.kind == subjects.SUBMIT and error.code == "bad_payload":
            raise RejectedError("bad_submission", str(error)) from error
        raise


def _completed(wanted: TaskSubmit, said: Envelope, workspace: str) -> TaskSubmit:
    """Return a submission in which its subject and envelope have told what it does not say itself.

    Its message id is its key: however often it comes, and by whichever way, it is one task.
    """
    if "workspace" in wanted.model_fields_set and wanted.workspace != workspace:
        raise RejectedError(
            "bad_submission", f"payload.workspace: the subject is that of workspace {workspace}"
        )
    return wanted.model_copy(
        update={
            "workspace": workspace,
            "idempotency_key": wanted.idempotency_key or str(said.message_id),
            "trace_id": wanted.trace_id or said.trace_id,
            "causation_id": wanted.causation_id or said.message_id,
        }
    )
