"""The history of a task: its events as sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from grns.diagnose.explain.phrases import because, clock, failure, progress, short
from grns.model.text import lasted

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class HistoryStep:
    """An event. `after_seconds` is the time since the one before, `version` the task's version after it."""

    seq: int
    at: datetime
    after_seconds: float
    version: int
    attempt: int | None
    kind: str
    actor: str | None
    sentence: str


def story(history: Iterable[Row]) -> list[HistoryStep]:
    """Return the steps, in order."""
    steps: list[HistoryStep] = []
    for row in history:
        before = steps[-1].at if steps else row["created_at"]
        steps.append(
            HistoryStep(
                seq=row["seq"],
                at=row["created_at"],
                after_seconds=max(0.0, (row["created_at"] - before).total_seconds()),
                version=row["version"],
                attempt=row["attempt"],
                kind=row["kind"],
                actor=row["actor"],
                sentence=_SENTENCES.get(row["kind"], _other)(row),
            )
        )
    return steps


def _by(row: Row) -> str:
    return "" if row["actor"] is None else f" by {row['actor']}"


def _moment(row: Row, name: str) -> str:
    """Return a time of a payload."""
    text = row["payload"].get(name)
    try:
        return clock(datetime.fromisoformat(text), row["created_at"])
    except (TypeError, ValueError):
        return "an unknown time"


def _queued(row: Row) -> str:
    payload = row["payload"]
    reason = payload.get("reason")
    if reason == "redriven":
        return f"redriven{_by(row)}, with its attempts reset{because(payload.get('why'))}"
    if reason == "resumed":
        return f"resumed{_by(row)}{because(payload.get('why'))}"
    if reason == "retry_due":
        return "queued: its retry was due"
    if row["version"] == 1:
        return (
            f"submitted{_by(row)} to the pool {payload.get('agent_type')}, priority {payload.get('priority')}"
        )
    if reason == "needs_met":
        return "queued: its needs are met"
    if reason == "signaled":
        return "queued: its signal came"
    if reason == "admitted":
        return "queued: there is room in its limits"
    return "queued: its time was due"


def _waiting(row: Row) -> str:
    reason = row["payload"].get("reason")
    if reason == "paused":
        return f"paused{_by(row)}{because(row['payload'].get('why'))}"
    if reason == "resumed":
        return f"resumed{_by(row)}{because(row['payload'].get('why'))}: waits again"
    if (step := row["payload"].get("step")) is not None:
        return _suspended(row, short(step))
    if row["payload"].get("waits_for") == "limit":
        return _limited(row, reason)
    if row["payload"].get("waits_for") == "tasks":
        if row["version"] == 1:
            return f"submitted{_by(row)}: waits for tasks"
        why = row["payload"].get("why")
        by = f", redriven{_by(row)}{because(why)}" if row["payload"].get("reason") == "redriven" else ""
        return f"waits for tasks again{by}"
    if row["version"] > 1:
        return f"its needs are met: due at {_moment(row, 'next_attempt_at')}"
    return f"submitted{_by(row)} with a delay: due at {_moment(row, 'next_attempt_at')}"


def _suspended(row: Row, step: str) -> str:
    """Say what a handler waits for."""
    if row["payload"].get("waits_for") == "tasks":
        return f"waits for its tasks, in the step {step!r}"
    if row["payload"].get("waits_for") == "signal" and step.startswith("ask "):
        return f"waits for a person, in the step {step!r}"
    if row["payload"].get("waits_for") == "signal" and step.startswith("event "):
        return f"waits for an event, in the step {step!r}"
    if row["payload"].get("waits_for") == "signal":
        return f"waits for a signal, in the step {step!r}"
    return f"sleeps until {_moment(row, 'next_attempt_at')}, in the step {step!r}"


def _limited(row: Row, reason: str | None) -> str:
    if reason == "redriven":
        return f"redriven{_by(row)}{because(row['payload'].get('why'))}: waits for room in its limits"
    if row["version"] == 1:
        return f"submitted{_by(row)}: waits for room in its limits"
    return "waits for room in its limits"


def _command(row: Row) -> str:
    payload = row["payload"]
    return f"command to the pool {payload.get('target_agent_type')} ({payload.get('reason')})"


def _claimed(row: Row) -> str:
    payload = row["payload"]
    queued = payload.get("queued_ms")
    after = "" if queued is None else f", after {lasted(queued / 1000)} in the queue"
    return f"claimed by {payload.get('agent_id')}: attempt {row['attempt']}{after}"


def _completed(row: Row) -> str:
    duration = row["payload"].get("duration_ms")
    return "succeeded" if duration is None else f"succeeded after {lasted(duration / 1000)}"


def _error(row: Row) -> str:
    return failure(row["payload"].get("error"), row["payload"].get("error_class"))


def _retry(row: Row) -> str:
    return f"{_error(row)}; retry at {_moment(row, 'next_attempt_at')}"


def _snoozed(row: Row) -> str:
    return f"put off by its handler until {_moment(row, 'next_attempt_at')}; the attempt does not count"


def _failed(row: Row) -> str:
    return f"failed with an error that is not retried: {_error(row)}"


def _dead(row: Row) -> str:
    return f"dead, its attempts are exhausted: {_error(row)}"


def _lease_expired(row: Row) -> str:
    why = "did not renew its lease in time"
    if row["payload"].get("error_class") == "stalled":
        why = "reported no progress for too long"
    return f"{row['payload'].get('agent_id')} {why}: queued again"


def _released(row: Row) -> str:
    agent_id, reason = row["payload"].get("agent_id"), row["payload"].get("reason")
    return f"released by {agent_id}{because(reason)}; the attempt does not count"


def _cancelled(row: Row) -> str:
    return f"cancelled{_by(row)}{because(row['payload'].get('reason'))}"


def _changed(row: Row) -> str:
    payload = row["payload"]
    what = ", ".join(name for name in payload.get("fields") or () if isinstance(name, str))
    return f"edited{_by(row)}: {what}{because(payload.get('reason'))}"


def _signaled(row: Row) -> str:
    return f"signal {row['payload'].get('name')}{_by(row)}"


def _progressed(row: Row) -> str:
    payload = row["payload"]
    return f"progress: {progress(payload.get('progress_percent'), payload.get('current_step'))}"


def _overdue(row: Row) -> str:
    return f"overdue: was expected to end at {_moment(row, 'estimated_completion_at')}"


def _question(row: Row) -> str:
    title, what = short(row["payload"].get("title")), row["kind"].rpartition(".")[2]
    if what == "answered":
        return f"answered{_by(row)}: {title}{because(row['payload'].get('comment'))}"
    if what == "linked":
        return f"link for an answer{_by(row)}: {title}"
    return f"asks people: {title}" if what == "asked" else f"not answered in time: {title}"


def _discarded(row: Row) -> str:
    return f"discarded{_by(row)}{because(row['payload'].get('reason'))}"


def _restored(row: Row) -> str:
    return f"restored from an archive{_by(row)}{because(row['payload'].get('reason'))}"


def _dead_letter(_row: Row) -> str:
    return "dead letter"


def _other(row: Row) -> str:
    return short(row["kind"])


_SENTENCES: dict[str, Callable[[Row], str]] = {
    "evt.task.queued": _queued,
    "evt.task.waiting": _waiting,
    "cmd.task.execute": _command,
    "evt.task.claimed": _claimed,
    "evt.task.completed": _completed,
    "evt.task.retry_scheduled": _retry,
    "evt.task.snoozed": _snoozed,
    "evt.task.failed": _failed,
    "evt.task.dead": _dead,
    "evt.task.lease_expired": _lease_expired,
    "evt.task.released": _released,
    "evt.task.cancelled": _cancelled,
    "evt.task.changed": _changed,
    "evt.task.signaled": _signaled,
    "evt.attempt.progressed": _progressed,
    "evt.attempt.overdue": _overdue,
    "evt.question.asked": _question,
    "evt.question.answered": _question,
    "evt.question.linked": _question,
    "evt.question.expired": _question,
    "evt.task.discarded": _discarded,
    "evt.task.restored": _restored,
    "dlq.task.dead": _dead_letter,
    "dlq.task.failed": _dead_letter,
}
