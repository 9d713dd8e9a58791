"""Explains what a task waits for that needs others."""

from __future__ import annotations

from grns.diagnose.explain.cause import Cause
from grns.diagnose.explain.phrases import because, clock, counted
from grns.diagnose.explain.snapshot import HoldSeen, NeedSeen, TaskSnapshot


def needy(seen: TaskSnapshot) -> list[Cause]:
    """Explain a task that waits for others."""
    needs = seen.needs
    if needs is None:
        return [Cause("waiting", "waiting for tasks, and nothing says for which: run grns admin verify")]
    held = [] if needs.hold is None else [_held(seen, needs.hold)]
    if needs.met >= needs.required:
        return held or [Cause("needs", "its needs are met: the follower queues it next")]
    running = [one for one in needs.unmet if one.ended_as is None]
    names = ", ".join(f"{named(one)} ({one.status or 'deleted'})" for one in running)
    more = f" and {needs.open - len(running)} more" if needs.open > len(running) else ""
    of = "" if needs.required == needs.open + needs.met else f", {needs.met} of {needs.required} are met"
    sentence = f"waiting for {counted(needs.open, 'task')}: {names}{more}{of}{at_latest(seen)}"
    return [Cause("needs", sentence, tuple(f"grns explain {one.id}" for one in running[:1])), *held]


def _held(seen: TaskSnapshot, hold: HoldSeen) -> Cause:
    if hold.paused_at is None:
        return Cause(
            "paused",
            f"its workflow {hold.workflow_id} is being cancelled: this task is cancelled next",
            ("grns operation list",),
        )
    return Cause(
        "paused",
        f"its workflow {hold.workflow_id} was paused by {hold.paused_by} at {clock(hold.paused_at, seen.now)}"
        f"{because(hold.reason)}",
        (f"grns workflow resume {hold.workflow_id}",),
    )


def named(one: NeedSeen) -> str:
    """Name a task that is needed."""
    name = one.task_type or "workflow" if one.name in (None, one.id) else one.name
    return f"{name} {one.id}"


def at_latest(seen: TaskSnapshot) -> str:
    """Say until when it waits, if it has a time limit."""
    due = seen.task.next_attempt_at
    return "" if due is None else f", until {clock(due, seen.now)} at the latest"
