"""What happened to a task, step by step: each row of the log about it is a sentence."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from grns.diagnose.explain.explanation import gone
from grns.diagnose.explain.history import story
from grns.model.task import STATUS_AFTER, TaskStatus

NOW = datetime(2026, 2, 6, 12, 0, 0, tzinfo=UTC)
ERROR = {"class": "TimeoutError", "message": "no answer\nin time", "traceback": "…"}


def ago(seconds: float) -> datetime:
    """Return a time before now."""
    return NOW - timedelta(seconds=seconds)


def row(kind: str, version: int, at: datetime = NOW, **said: Any) -> dict[str, Any]:
    """Return one row of the log."""
    actor, attempt = said.pop("actor", None), said.pop("attempt", 0)
    return {
        "seq": version, "version": version, "kind": kind, "attempt": attempt, "actor": actor,
        "payload": {"task_id": "gr-1", **said}, "created_at": at,
    }  # fmt: skip


STORY = [
    (row("evt.task.queued", 1, ago(100), reason="new_task", agent_type="worker", priority=2, actor="key:7f"),
     "submitted by key:7f to the pool worker, priority 2"),
    (row("cmd.task.execute", 1, ago(100), target_agent_type="worker", reason="new_task"),
     "command to the pool worker (new_task)"),
    (row("evt.task.claimed", 2, ago(99), attempt=1, agent_id="worker-1", queued_ms=1000),
     "claimed by worker-1: attempt 1, after 1 s in the queue"),
    (row("evt.task.retry_scheduled", 3, ago(98), attempt=1, error=ERROR, error_class="TimeoutError",
         next_attempt_at="2026-02-06T11:59:00Z"), "TimeoutError: no answer; retry at 11:59:00Z"),
    (row("evt.task.queued", 4, ago(60), reason="retry_due"), "queued: its retry was due"),
    (row("evt.task.claimed", 5, ago(59), attempt=2, agent_id="worker-2"), "claimed by worker-2: attempt 2"),
    (row("evt.task.lease_expired", 6, ago(40), attempt=2, agent_id="worker-2"),
     "worker-2 did not renew its lease in time: queued again"),
    (row("evt.task.released", 8, ago(30), attempt=3, agent_id="worker-3", reason="shutdown"),
     "released by worker-3 (shutdown); the attempt does not count"),
    (row("evt.task.snoozed", 9, ago(25), attempt=4, next_attempt_at="2026-02-06T11:59:40Z"),
     "put off by its handler until 11:59:40Z; the attempt does not count"),
    (row("evt.task.dead", 10, ago(20), attempt=4, error=ERROR, error_class="TimeoutError"),
     "dead, its attempts are exhausted: TimeoutError: no answer"),
    (row("dlq.task.dead", 10, ago(20), attempt=4), "dead letter"),
    (row("evt.task.queued", 11, ago(10), reason="redriven", actor="cli:ann@desk"),
     "redriven by cli:ann@desk, with its attempts reset"),
    (row("evt.task.changed", 11, ago(9), fields=["priority", "payload"], actor="cli:ann@desk", reason="now"),
     "edited by cli:ann@desk: priority, payload (now)"),
    (row("evt.task.completed", 13, ago(5), attempt=5, duration_ms=1500), "succeeded after 1.5 s"),
]  # fmt: skip


def test_a_story_is_told_step_by_step() -> None:
    steps = story([one for one, _ in STORY])
    assert [step.sentence for step in steps] == [sentence for _, sentence in STORY]
    assert [step.after_seconds for step in steps][:5] == [0.0, 0.0, 1.0, 1.0, 38.0]


def test_each_event_of_a_task_has_words_of_its_own() -> None:
    for kind in [*STATUS_AFTER, "evt.task.changed", "evt.task.discarded", "cmd.task.execute"]:
        (step,) = story([row(kind, 2)])
        assert step.sentence != kind
    assert story([row("evt.task.novel", 2)])[0].sentence == "evt.task.novel"


def test_of_a_deleted_task_the_log_tells() -> None:
    found = gone("gr-1", "default", [one for one, _ in STORY])
    assert (found.reason, found.status, found.claim) == ("deleted", TaskStatus.SUCCEEDED, "unknown_task")
    assert found.sentence.startswith("the task was deleted; its last status was succeeded")
    assert len(found.steps) == len(STORY)
