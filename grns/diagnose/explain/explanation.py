"""Explains the status of a task: from a snapshot to reason codes and sentences. No I/O, no clock.

Codes are stable, sentences can change. `Explanation.claim` is the answer that a worker would get now: a
reason of `grns_claim_conflicts_total`, such as `not_due`, or `claimable`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from grns.diagnose.explain.cause import Cause
from grns.diagnose.explain.history import HistoryStep, story
from grns.diagnose.explain.limited import limited
from grns.diagnose.explain.needy import at_latest, named, needy
from grns.diagnose.explain.phrases import because, clock, counted, failure, progress, short
from grns.diagnose.explain.queued import LATE_SECONDS, obstacles, standing
from grns.diagnose.explain.snapshot import TaskSnapshot
from grns.model.task import REDRIVABLE, STATUS_AFTER, TERMINAL, TaskStatus
from grns.model.text import lasted

ClaimWord = Literal[
    "claimable",
    "not_due",
    "paused",
    "no_handler",
    "lost_race",
    "terminal",
    "locked",
    "unknown_task",
    "routed",
]


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a task has its status.

    `reason` and `sentence` are those of the first of `reasons`, which must change before the others matter.
    `next_steps` are commands that help, `steps` the latest events in order. `traceback` is that of the latest
    error, if there is one and the task did not succeed. A deleted task is explained by the event log: its
    status is that of its last event, and `at` the time of that event.
    """

    task_id: str
    task_type: str | None
    agent_type: str | None
    workspace: str
    status: TaskStatus | None
    reason: str
    sentence: str
    claim: ClaimWord
    attempt: int
    attempt_limit: int | None
    at: datetime
    reasons: Sequence[Cause]
    next_steps: Sequence[str]
    steps: Sequence[HistoryStep]
    traceback: str | None = None


def explain(seen: TaskSnapshot) -> Explanation:
    """Explain a task."""
    reasons = _READERS[seen.task.status](seen)
    task = seen.task
    steps = list(dict.fromkeys(command for one in reasons for command in one.next_steps))
    return Explanation(
        task_id=task.id,
        task_type=task.task_type,
        agent_type=task.agent_type,
        workspace=task.workspace,
        status=task.status,
        reason=reasons[0].word,
        sentence=reasons[0].sentence,
        claim=_claim(seen, [one.word for one in reasons]),
        attempt=task.attempt,
        attempt_limit=seen.attempt_limit,
        at=seen.now,
        reasons=reasons,
        next_steps=steps,
        steps=story(seen.history),
        traceback=None if task.status is TaskStatus.SUCCEEDED else (task.last_error or {}).get("traceback"),
    )


def gone(task_id: str, workspace: str, history: Sequence[Mapping[str, Any]]) -> Explanation:
    """Explain a deleted task by its events."""
    last = [row for row in history if row["kind"] in STATUS_AFTER]
    status = STATUS_AFTER[last[-1]["kind"]] if last else None
    ended = "" if status is None else f"; its last status was {status.value}"
    reason = Cause("deleted", f"the task was deleted{ended}: retention deletes tasks that ended long ago")
    named = {**history[0]["payload"]}
    return Explanation(
        task_id=task_id,
        task_type=named.get("task_type"),
        agent_type=named.get("agent_type"),
        workspace=workspace,
        status=status,
        reason=reason.word,
        sentence=reason.sentence,
        claim="unknown_task",
        attempt=history[-1]["attempt"] or 0,
        attempt_limit=None,
        at=history[-1]["created_at"],
        reasons=[reason],
        next_steps=[],
        steps=story(history),
    )


def _claim(seen: TaskSnapshot, words: Sequence[str]) -> ClaimWord:
    task = seen.task
    if task.status in TERMINAL:
        return "terminal"
    if task.status is TaskStatus.RUNNING:
        return "lost_race"
    is_early = task.next_attempt_at is not None and task.next_attempt_at > seen.now
    if is_early or task.status is TaskStatus.WAITING:
        return "not_due"
    for word, answer in _ANSWERS.items():
        if word in words:
            return answer
    return "claimable"


_ANSWERS: dict[str, ClaimWord] = {
    "paused": "paused", "no_handler": "no_handler", "locked": "locked",
    **dict.fromkeys(("no_capable_agent", "agent_away", "agent_draining", "agent_full"), "routed"),
}  # fmt: skip


# ---------------------------------------------------------------- waiting and retry_wait


def _waiting(seen: TaskSnapshot) -> list[Cause]:
    due, pause = seen.task.next_attempt_at, seen.task_pause
    if pause is not None:
        at = clock(pause.paused_at, seen.now)
        sentence = f"paused by {pause.paused_by} at {at}{because(pause.reason)}"
        return [Cause("paused", sentence, (f"grns task resume {seen.task.id}",))]
    if seen.task.waits_for == "signal":
        return [_signal(seen)]
    if due is None or seen.task.waits_for == "tasks":
        return limited(seen) if seen.task.waits_for == "limit" else needy(seen)
    if due > seen.now and (step := _step(seen)) is not None:
        left = (due - seen.now).total_seconds()
        sentence = f"sleeping in its step {step!r} until {clock(due, seen.now)}, for {lasted(left)} more"
        return [Cause("not_due", sentence), *standing(seen)]
    if due > seen.now:
        left = (due - seen.now).total_seconds()
        sentence = f"waiting until {clock(due, seen.now)}, for {lasted(left)} more"
        step = f"grns task edit {seen.task.id} --delay 0s  (to run it now)"
        return [Cause("not_due", sentence, (step,)), *standing(seen)]
    return [_overdue(seen, due, "waiting:"), *standing(seen)]


def _signal(seen: TaskSnapshot) -> Cause:
    if (step := _step(seen) or "").startswith("ask "):
        hint = "grns task question list  (and: grns task question answer QUESTION_ID)"
        return Cause("signal", f"waiting for a person, in its step {step!r}{at_latest(seen)}", (hint,))
    if step.startswith("event "):
        kind = step.removeprefix("event ").partition("#")[0]
        return Cause(
            "signal",
            f"waiting for the event {kind}{at_latest(seen)}",
            (f"grns events tail --kind {kind} --since 1h",),
        )
    name = step.removeprefix("signal ").partition("#")[0] or "NAME"
    hint = f"grns task signal {seen.task.id} {name}  (to send it now)"
    return Cause("signal", f"waiting for the signal {name}{at_latest(seen)}", (hint,))


def _step(seen: TaskSnapshot) -> str | None:
    """Return the step in which the handler waits."""
    waits = [row for row in seen.history if row["kind"] == "evt.task.waiting"]
    return waits[-1]["payload"].get("step") if waits else None


def _retry_wait(seen: TaskSnapshot) -> list[Cause]:
    task, due = seen.task, seen.task.next_attempt_at
    limit = "" if seen.attempt_limit is None else f" of {seen.attempt_limit}"
    which = f"attempt {task.attempt - task.uncounted_attempts + 1}{limit}"
    after = f"after {failure(task.last_error)}"
    if due is None:
        return [Cause("retry_wait", f"waiting for {which}, {after}")]
    if due > seen.now:
        left = (due - seen.now).total_seconds()
        sentence = f"waiting for its retry, {which}, at {clock(due, seen.now)}, in {lasted(left)}, {after}"
        step = f"grns task edit {task.id} --delay 0s  (to run it now)"
        return [Cause("retry_wait", sentence, (step,)), *standing(seen)]
    return [_overdue(seen, due, f"waiting for its retry, {which}, {after}:"), *standing(seen)]


def _overdue(seen: TaskSnapshot, due: datetime, beginning: str) -> Cause:
    late = seen.since(due)
    sentence = f"{beginning} due at {clock(due, seen.now)}, {lasted(late)} ago"
    if late < LATE_SECONDS:
        return Cause("due", f"{sentence}; the retry scheduler is about to queue it")
    return Cause(
        "overdue",
        f"{sentence}, and no retry scheduler has queued it",
        ("grns daemon scheduler",),
    )


# ---------------------------------------------------------------- running


def _running(seen: TaskSnapshot) -> list[Cause]:
    task, owner = seen.task, seen.task.owner_agent_id or "an unknown worker"
    limit = "" if seen.attempt_limit is None else f" of {seen.attempt_limit}"
    which = f"{owner}{_where(seen)} has been running attempt {task.attempt - task.uncounted_attempts}{limit}"
    beginning = f"{which} for {lasted(seen.since(task.started_at))}"
    left = 0.0 if task.lease_until is None else (task.lease_until - seen.now).total_seconds()
    reasons = [_lease_over(seen, beginning, -left)] if left <= 0 else []
    if task.cancel_requested_at is not None:
        asked = f"{lasted(seen.since(task.cancel_requested_at))} ago{because(seen.cancel_reason)}"
        who = "" if seen.cancel_actor is None else f" by {seen.cancel_actor}"
        sentence = f"cancellation was requested{who} {asked}: the task ends with this attempt"
        reasons.append(Cause("cancelling", f"{beginning}; {sentence}" if not reasons else sentence))
    if not reasons:
        said = progress(task.progress_percent, task.current_step)
        beginning += f" ({said})" if said else ""
        beginning += ", longer than expected" if task.is_overdue else ""
        sentence = f"running: {beginning}; its lease lasts {lasted(left)} more unless it is renewed"
        reasons.append(Cause("running", sentence))
    if left > 0 and (silence := _silence(seen)) is not None:
        reasons.append(silence)
    late = seen.commands_at(task.version - 1) - 1  # all but the one that led to the claim
    if late > 0:
        reasons.append(_lost_race(late, owner))
    return reasons


def _where(seen: TaskSnapshot) -> str:
    owner = seen.owner
    if owner is None or owner.host is None:
        return ""
    return f" ({short(owner.host)}, process {owner.pid}, grns {short(owner.version)})"


def _lease_over(seen: TaskSnapshot, beginning: str, seconds: float) -> Cause:
    sentence = f"{beginning}, and its lease expired {lasted(seconds)} ago"
    pulse = seen.pulse
    if pulse.reaper_holds_seconds > 0:
        return Cause(
            "lease_over",
            f"{sentence}: the grace period after an outage, in which live workers renew first, lasts"
            f" {lasted(pulse.reaper_holds_seconds)} more",
        )
    tick = pulse.reaped_seconds_ago
    if tick is not None and not pulse.is_reaper_late:
        return Cause("lease_over", f"{sentence}: a reaper is about to put it back")
    when = "none has ever run" if tick is None else f"the last run was {lasted(tick)} ago"
    return Cause("unreaped", f"{sentence}, and no reaper has put it back ({when})", ("grns daemon reaper",))


def _silence(seen: TaskSnapshot) -> Cause | None:
    """Return a cause if the worker has stopped or sends no heartbeats."""
    owner = seen.owner
    if owner is None or owner.silent_seconds is None or owner.lease_seconds is None:
        return None
    if owner.has_stopped:
        sentence = "its worker has stopped: the task is queued again when the lease expires"
    elif owner.silent_seconds > owner.lease_seconds:
        silent = lasted(owner.silent_seconds)
        sentence = (
            f"its worker has sent no heartbeat for {silent}: the task is queued again when the lease expires"
        )
    else:
        return None
    return Cause("owner_silent", sentence)


def _lost_race(commands: int, owner: str) -> Cause:
    named = counted(commands, "more command")
    return Cause(
        "lost_race",
        f"{named} named the task: a worker that gets one acknowledges it, because {owner} owns it",
    )


# ---------------------------------------------------------------- ended


def _succeeded(seen: TaskSnapshot) -> list[Cause]:
    return [Cause("succeeded", f"succeeded {_ended(seen)}, with attempt {seen.task.attempt}{_took(seen)}")]


def _ended(seen: TaskSnapshot) -> str:
    finished = seen.task.finished_at
    return "" if finished is None else f"at {clock(finished, seen.now)}"


def _took(seen: TaskSnapshot) -> str:
    task = seen.task
    if task.started_at is None or task.finished_at is None:
        return ""
    return f", which took {lasted((task.finished_at - task.started_at).total_seconds())}"


def _dead(seen: TaskSnapshot) -> list[Cause]:
    task = seen.task
    spent = task.attempt - task.uncounted_attempts
    limit = spent if seen.attempt_limit is None else seen.attempt_limit
    which = (
        f"all {counted(spent, 'attempt')}" if spent >= limit else f"{spent} of {counted(limit, 'attempt')}"
    )
    number = "" if spent == task.attempt else f" (the last one is attempt {task.attempt})"
    sentence = f"dead {_ended(seen)}, {which} used{number}: {failure(task.last_error)}"
    return [Cause("dead", sentence, _open_again(seen)), *_issue(seen), *_set_aside(seen)]


def _failed(seen: TaskSnapshot) -> list[Cause]:
    task = seen.task
    sentence = f"failed {_ended(seen)} with attempt {task.attempt}, with an error that is not retried: "
    return [
        Cause("failed", sentence + failure(task.last_error), _open_again(seen)),
        *_issue(seen),
        *_set_aside(seen),
    ]


def _issue(seen: TaskSnapshot) -> list[Cause]:
    found, task = seen.issue, seen.task
    if found is None:
        return []
    others = max(0, found.open_count - 1)
    alone = f"{counted(others, 'other task') if others else 'no other task'} dead or failed with it"
    who = "" if found.owner is None else f", owned by {short(found.owner)}"
    sentence = (
        f"its issue {found.fingerprint} is {found.state}{who}: {alone}, seen {counted(found.total, 'time')}"
        f" since {clock(found.first_seen, seen.now)}{because(found.note)}"
    )
    steps = [f"grns issue show {found.fingerprint}"]
    if others and task.discarded_at is None:
        steps.append(f"grns issue redrive {found.fingerprint}  (all its tasks)")
    return [Cause("issue", sentence, tuple(steps))]


def _cancelled(seen: TaskSnapshot) -> list[Cause]:
    who = "" if seen.cancel_actor is None else f" by {seen.cancel_actor}"
    sentence = f"cancelled {_ended(seen)}".strip() + who + because(seen.cancel_reason)
    broken = [one for one in seen.needs.unmet if one.ended_as is not None] if seen.needs else []
    if broken and seen.cancel_actor is None and seen.cancel_reason in ("dependency", "skipped"):
        why = broken[0]
        needed = {"success": "succeed", "failure": "fail", "end": "end"}[why.outcome]
        sentence += f": {named(why)} had to {needed}, and is {why.ended_as}"
        steps = tuple(f"{step}  (at once, without what it needs)" for step in _open_again(seen))
        if why.ended_as in REDRIVABLE and why.outcome == "success":
            steps = (f"grns task redrive {why.id}  (brings this task back, too)",)
        return [Cause("needs", sentence, steps), *_set_aside(seen)]
    return [Cause("cancelled", sentence, _open_again(seen)), *_set_aside(seen)]


def _open_again(seen: TaskSnapshot) -> tuple[str, ...]:
    if seen.task.discarded_at is not None:
        return ()
    redrive = f"grns task redrive {seen.task.id}"
    if seen.task.status == TaskStatus.CANCELLED:
        return (redrive,)
    return (
        f"{redrive}  (once its cause is gone; restart workers whose code you fixed)",
        f"{redrive} --patch JSON  (with another payload)",
    )


def _set_aside(seen: TaskSnapshot) -> list[Cause]:
    task = seen.task
    if task.discarded_at is None:
        return []
    who = "" if task.discarded_by is None else f" by {task.discarded_by}"
    sentence = f"discarded{who} at {clock(task.discarded_at, seen.now)}: lists hide it"
    return [Cause("discarded", sentence)]


_READERS: dict[TaskStatus, Callable[[TaskSnapshot], list[Cause]]] = {
    TaskStatus.WAITING: _waiting,
    TaskStatus.QUEUED: obstacles,
    TaskStatus.RUNNING: _running,
    TaskStatus.RETRY_WAIT: _retry_wait,
    TaskStatus.SUCCEEDED: _succeeded,
    TaskStatus.FAILED: _failed,
    TaskStatus.DEAD: _dead,
    TaskStatus.CANCELLED: _cancelled,
}
