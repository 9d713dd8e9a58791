"""What happened to a task, step by step: the rows of the log about it, as sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from grns.diagnose.explain.wording import because, clock, failure, short
from grns.text import lasted

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class HistoryStep:
    """One row of the log. `after_seconds` is since the one before, `version` the task's after it."""

    seq: int
    at: datetime
    after_seconds: float
    version: int
    attempt: int | None
    kind: str
    actor: str | None
    sentence: str


def story(history: Iterable[Row]) -> list[HistoryStep]:
    """Return what happened, in order."""
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
                sentence=_SAYERS.get(row["kind"], _other)(row),
            )
        )
    return steps


def _by(row: Row) -> str:
    return "" if row["actor"] is None else f" by {row['actor']}"


def _moment(row: Row, name: str) -> str:
    """Return a time in a payload, which is text there; nothing where it is none."""
    said = row["payload"].get(name)
    try:
        return clock(datetime.fromisoformat(said), row["created_at"])
    except (TypeError, ValueError):
        return "some time"


def _queued(row: Row) -> str:
    said = row["payload"]
    reason = said.get("reason")
    if reason == "redriven":
        return f"opened again{_by(row)}, with all attempts before it{because(said.get('why'))}"
    if reason == "retry_due":
        return "queued: its retry was due"
    if row["version"] == 1:
        return f"submitted{_by(row)}: for {said.get('agent_type')}, priority {said.get('priority')}"
    return "queued: it was due"


def _waiting(row: Row) -> str:
    return f"submitted{_by(row)} with a delay: due at {_moment(row, 'next_attempt_at')}"


def _command(row: Row) -> str:
    said = row["payload"]
    return f"command to its lane of {said.get('target_agent_type')} ({said.get('reason')})"


def _claimed(row: Row) -> str:
    said = row["payload"]
    queued = said.get("queued_ms")
    after = "" if queued is None else f", after {lasted(queued / 1000)} in the queue"
    return f"claimed by {said.get('agent_id')}: attempt {row['attempt']}{after}"


def _completed(row: Row) -> str:
    duration = row["payload"].get("duration_ms")
    return "succeeded" if duration is None else f"succeeded after {lasted(duration / 1000)}"


def _retry(row: Row) -> str:
    said = row["payload"]
    return (
        f"{failure(said.get('error'), said.get('error_class'))}; retry at {_moment(row, 'next_attempt_at')}"
    )


def _failed(row: Row) -> str:
    said = row["payload"]
    return f"failed, no other attempt would help: {failure(said.get('error'), said.get('error_class'))}"


def _dead(row: Row) -> str:
    said = row["payload"]
    return f"dead, the attempts are spent: {failure(said.get('error'), said.get('error_class'))}"


def _lease_expired(row: Row) -> str:
    return f"{row['payload'].get('agent_id')} did not renew its lease in time: queued again"


def _released(row: Row) -> str:
    said = row["payload"]
    return (
        f"given back by {said.get('agent_id')}{because(said.get('reason'))}, and the attempt does not count"
    )


def _cancelled(row: Row) -> str:
    return f"cancelled{_by(row)}{because(row['payload'].get('reason'))}"


def _changed(row: Row) -> str:
    said = row["payload"]
    what = ", ".join(name for name in said.get("fields") or () if isinstance(name, str))
    return f"edited{_by(row)}: {what}{because(said.get('reason'))}"


def _discarded(row: Row) -> str:
    return f"set aside{_by(row)}{because(row['payload'].get('reason'))}"


def _letter(_row: Row) -> str:
    return "dead letter"


def _other(row: Row) -> str:
    return short(row["kind"])


_SAYERS: dict[str, Callable[[Row], str]] = {
    "evt.task.queued": _queued,
    "evt.task.waiting": _waiting,
    "cmd.task.execute": _command,
    "evt.task.claimed": _claimed,
    "evt.task.completed": _completed,
    "evt.task.retry_scheduled": _retry,
    "evt.task.failed": _failed,
    "evt.task.dead": _dead,
    "evt.task.lease_expired": _lease_expired,
    "evt.task.released": _released,
    "evt.task.cancelled": _cancelled,
    "evt.task.changed": _changed,
    "evt.task.discarded": _discarded,
    "dlq.task.dead": _letter,
    "dlq.task.failed": _letter,
}
