"""One task on the screen: its row, payload, result, attempts and events."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from grns.cli import failure
from grns.cli.output import Cell, Column, Output, details, document, heading, passage, table
from grns.cli.session import CliSession
from grns.client.client import Client
from grns.model.secret import mask_text
from grns.model.task import Task
from grns.model.text import attempts_of, lasted, shortened
from grns.model.timeline import Attempt
from grns.outbox.events import read_attempts

_SUMMARY_WIDTH = 100
# The attempts of a task are made of its latest transitions.
_MOST_TRANSITIONS = 1000


def _lasted(start: datetime, end: datetime | None) -> str:
    return "-" if end is None else lasted((end - start).total_seconds())


def _count(task: Task) -> str:
    in_all = f" ({task.attempt} in all)" if task.uncounted_attempts else ""
    return attempts_of(task.attempt - task.uncounted_attempts, task.max_attempts, " of ") + in_all


def _progress(task: Task) -> str | None:
    parts = [] if task.progress_percent is None else [f"{task.progress_percent:.0f} %"]
    parts += [] if task.current_step is None else [task.current_step]
    parts += ["overdue"] if task.is_overdue else []
    return ", ".join(parts) or None


_FIELDS: Sequence[tuple[str, Cell]] = (
    ("id", "id"),
    ("title", "title"),
    ("type", "task_type"),
    ("status", "status"),
    ("pool", "agent_type"),
    ("priority", "priority"),
    ("attempts", _count),
    ("tags", lambda task: " ".join(task.tags) or None),
    ("created by", "created_by"),
    ("description", "description"),
    ("workspace", "workspace"),
    ("trace id", "trace_id"),
    ("caused by", "causation_id"),
    ("idempotency key", "idempotency_key"),
    ("created", "created_at"),
    ("queued", "queued_at"),
    ("due", "next_attempt_at"),
    ("started", "started_at"),
    ("owner", "owner_agent_id"),
    ("progress", _progress),
    ("expected end", "estimated_completion_at"),
    ("lease until", "lease_until"),
    ("cancel asked", "cancel_requested_at"),
    ("finished", "finished_at"),
    ("discarded", "discarded_at"),
    ("discarded by", "discarded_by"),
    ("operation", "operation_id"),
    ("fingerprint", "fingerprint"),
)
_ATTEMPTS = (
    Column("#", "attempt"),
    Column("CLAIMED", "claimed_at"),
    Column("LASTED", lambda attempt: _lasted(attempt.claimed_at, attempt.ended_at), spare=1),
    Column("ENDED AS", lambda attempt: attempt.outcome or "runs", is_status=True),
    Column("WHY", "reason", may_shrink=True),
    Column("AGENT", "agent_id", may_shrink=True),
)
_EVENTS = (
    Column("SEQ", "seq", spare=1),
    Column("V", "version"),
    Column("AT", "created_at"),
    Column("KIND", "kind"),
    Column("BY", "actor", may_shrink=True, spare=2),
    Column("PAYLOAD", lambda event: summary(event.payload), may_shrink=True, wraps=True),
)


async def show_task(session: CliSession, out: Output, task_id: str) -> None:
    """Show a task. Raises `NotFoundError`."""
    task = await session.client.get(task_id)
    page = await read_attempts(
        session.database, task_id, workspace=session.workspace, limit=_MOST_TRANSITIONS
    )
    attempts = page.rows
    out.record({**asdict(task), "attempts": attempts}, lambda: _draw(task, attempts))


async def show_events(client: Client, out: Output, task_id: str) -> None:
    """Show the events of a task. Raises `NotFoundError` if there are neither events nor a task."""
    history = await client.events(task_id)
    if not history:
        await client.get(task_id)
    out.rows(history, _EVENTS)
    if out.is_table and not history:
        failure.note("the events of this task have been deleted")


def summary(payload: Mapping[str, Any], *, without: Sequence[str] = ("task_id",)) -> str:
    """Return a payload in one line: shortened on a terminal, complete everywhere else."""
    parts = (
        f"{name}={value if isinstance(value, str) else mask_text(json.dumps(value, ensure_ascii=False))}"
        for name, value in payload.items()
        if name not in without and value is not None
    )
    line = " ".join(parts)
    return shortened(line, _SUMMARY_WIDTH) if sys.stdout.isatty() else line


def _draw(task: Task, attempts: Sequence[Attempt]) -> None:
    details(task, _FIELDS)
    document("payload", task.payload)
    if task.result is not None or task.status == "succeeded":
        document("result", task.result)
    if task.checkpoint_data is not None:
        document("checkpoint", task.checkpoint_data)
    if task.last_error is not None:
        title = "error of an earlier attempt" if task.status == "succeeded" else "last error"
        document(title, {name: value for name, value in task.last_error.items() if name != "traceback"})
        if traceback := task.last_error.get("traceback"):
            passage("traceback", traceback)
    if attempts:
        heading("attempts")
        table(attempts, _ATTEMPTS)
