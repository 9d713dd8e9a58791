"""One task, shown: its row, its payload and result, its attempts, its events."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from grns.cli.output import Column, Output, document, fields, heading, passage, table
from grns.client.client import Client
from grns.model.task import Task
from grns.model.timeline import timeline
from grns.text import attempts_of, lasted, shortened

_SUMMARY_WIDTH = 100


async def show_task(client: Client, out: Output, task_id: str) -> None:
    """Show one task; `NotFoundError` where there is none."""
    found = await client.get(task_id)
    attempts = timeline(await client.history(task_id))
    out.record({**asdict(found), "attempts": attempts}, lambda: _draw(found, attempts))


async def show_events(client: Client, out: Output, task_id: str) -> None:
    """Show what the log has about one task; `NotFoundError` where there is neither log nor task."""
    history = await client.history(task_id)
    if not history:
        await client.get(task_id)
    columns = [
        Column("SEQ", lambda row: row["seq"], spare=1),
        Column("V", lambda row: row["version"]),
        Column("AT", lambda row: row["created_at"]),
        Column("KIND", lambda row: row["kind"]),
        Column("BY", lambda row: row["actor"], may_shrink=True, spare=2),
        Column("WHAT IT SAYS", lambda row: summary(row["payload"]), may_shrink=True, wraps=True),
    ]
    out.rows(history, columns)
    out.end(history, None, nothing="the log about this task has been deleted")


def summary(payload: Mapping[str, Any], *, without: Sequence[str] = ("task_id",)) -> str:
    """Return a payload in one line: a short one for people, the whole of it for whatever else reads it."""
    parts = (
        f"{name}={value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for name, value in payload.items()
        if name not in without and value is not None
    )
    line = " ".join(parts)
    return shortened(line, _SUMMARY_WIDTH) if sys.stdout.isatty() else line


def _draw(task: Task, attempts: Sequence[Mapping[str, Any]]) -> None:
    fields(
        [
            ("id", task.id),
            ("type", task.task_type),
            ("status", task.status.value),
            ("agent type", task.agent_type),
            ("priority", task.priority),
            ("attempts", _count(task)),
            ("workspace", task.workspace),
            ("trace id", task.trace_id),
            ("caused by", task.causation_id),
            ("idempotency key", task.idempotency_key),
            ("created", task.created_at),
            ("queued", task.queued_at),
            ("due", task.next_attempt_at),
            ("started", task.started_at),
            ("owner", task.owner_agent_id),
            ("lease until", task.lease_until),
            ("cancel asked", task.cancel_requested_at),
            ("finished", task.finished_at),
            ("discarded", task.discarded_at),
            ("discarded by", task.discarded_by),
            ("operation", task.operation_id),
            ("fingerprint", task.fingerprint),
        ]
    )
    document("payload", task.payload)
    if task.result is not None or task.status == "succeeded":
        document("result", task.result)
    if task.last_error is not None:
        title = "error of an earlier attempt" if task.status == "succeeded" else "last error"
        document(title, {name: value for name, value in task.last_error.items() if name != "traceback"})
        if traceback := task.last_error.get("traceback"):
            passage("traceback", traceback)
    if attempts:
        heading("attempts")
        _draw_attempts(attempts)


def _count(task: Task) -> str:
    in_all = f" ({task.attempt} in all)" if task.uncounted_attempts else ""
    return attempts_of(task.attempt - task.uncounted_attempts, task.max_attempts, " of ") + in_all


def _draw_attempts(attempts: Sequence[Mapping[str, Any]]) -> None:
    table(
        attempts,
        [
            Column("#", lambda row: row["attempt"]),
            Column("CLAIMED", lambda row: row["claimed_at"]),
            Column("LASTED", lambda row: _lasted(row["claimed_at"], row["ended_at"]), spare=1),
            Column("ENDED AS", lambda row: row["outcome"] or "runs", is_status=True),
            Column("WHY", lambda row: row["reason"], may_shrink=True),
            Column("AGENT", lambda row: row["agent_id"], may_shrink=True),
        ],
    )


def _lasted(start: datetime, end: datetime | None) -> str:
    return "-" if end is None else lasted((end - start).total_seconds())
