"""Signals: what is sent to a task that waits for it, or will ask for it."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

from grns.errors import ConflictError
from grns.model.json import Limits
from grns.model.secret import check_clear, clear_text
from grns.nats import JetStream
from grns.postgres import user_connection
from grns.postgres.database import Database, Session
from grns.tasks.announce import QueuedTask, announce_queued

_LIMITS = Limits(document_bytes=64 * 1024)


async def send_signal(
    database: Database | Session,
    transport: JetStream,
    task_id: str,
    name: str,
    value: Any,
    *,
    signal_id: UUID | None,
    workspace: str,
    actor: str | None,
    connection: Any = None,
) -> str:
    """Send a signal, in the caller's transaction if there is a connection.

    Returns:
        `woken`: the task waited for it; `kept` until the task asks for it; `repeated`: it was sent before.

    Raises:
        NotFoundError: there is no such task.
        ConflictError: the task has ended.
        InvalidInputError: `bad_signal`: the name or the value is invalid; `too_many_signals`: the task has
            1,000.
    """
    text = clear_text(value, _LIMITS)
    check_clear(text)
    arguments = (task_id, name, text, signal_id or uuid4(), workspace, actor, connection is not None)
    if connection is not None:
        (row,) = await user_connection.fetch(connection, "send_signal", arguments)
    else:
        (row,) = await database.run("send_signal", *arguments)
    answer: str = row["answer"]
    if answer not in ("woken", "kept", "repeated"):
        raise ConflictError(f"task {task_id} takes no signal: it is {answer}")
    if connection is None and row["agent_type"] is not None:
        await announce_queued(transport, [QueuedTask(workspace, row["agent_type"], task_id)])
    return answer
