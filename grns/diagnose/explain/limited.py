"""Why a task under limits is not queued yet."""

from __future__ import annotations

from grns.diagnose.explain.cause import Cause
from grns.diagnose.explain.phrases import because, clock
from grns.diagnose.explain.queued import LATE_SECONDS
from grns.diagnose.explain.snapshot import LimitSeen, TaskSnapshot
from grns.model.text import counted, lasted


def limited(seen: TaskSnapshot) -> list[Cause]:
    """Return what keeps a task that waits for room in its limits."""
    causes = [cause for one in seen.limits if (cause := _cause(seen, one)) is not None]
    if causes:
        return causes
    waited = seen.since(seen.task.updated_at)
    sentence = f"there is room in its limits ({', '.join(one.key for one in seen.limits)})"
    if waited < LATE_SECONDS:
        return [Cause("limit", f"{sentence}: the admitter queues it next")]
    step = f"grns pool limit keys {seen.limits[0].name}" if seen.limits else "grns doctor"
    return [
        Cause(
            "limit",
            f"{sentence}, and it has waited for {lasted(waited)}: its turn among others has not come, or no"
            " scheduler daemon runs",
            ("grns doctor", step),
        )
    ]


def _cause(seen: TaskSnapshot, one: LimitSeen) -> Cause | None:
    if one.paused_at is not None:
        at = clock(one.paused_at, seen.now)
        return Cause(
            "paused",
            f"its limit {one.name} was paused by {one.paused_by} at {at}{because(one.reason)}",
            (f"grns pool limit resume {one.name}",),
        )
    before = "" if not one.ahead else f"; {counted(one.ahead, 'task')} before it"
    if one.max_tasks is not None and one.held >= one.max_tasks:
        return Cause(
            "limit",
            f"waiting for limit {one.key}: {one.held} of {one.max_tasks} are queued or running{before}",
            (f"grns pool limit keys {one.name}",),
        )
    if one.rate is not None:
        return Cause(
            "limit",
            f"waiting for limit {one.key}: {one.rate} may begin{before}",
            (f"grns pool limit show {one.name}",),
        )
    return None
