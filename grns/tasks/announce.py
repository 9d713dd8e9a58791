"""Tell the relay, and one worker of the pool, of tasks that were queued just now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from grns.model import subjects
from grns.nats import JetStream
from grns.tasks.submit import Prepared
from grns.telemetry import failpoint

# Of more tasks than these only the relay is told: their commands share messages.
_MOST_NAMED = 8


class QueuedTask(NamedTuple):
    """A task that a worker of its pool may claim now."""

    workspace: str
    agent_type: str
    id: str


async def announce(transport: JetStream, created: Sequence[Prepared]) -> None:
    """Send hints once tasks have been submitted and their transaction has committed."""
    if any(one.submission.needs for one in created):
        await transport.nudge(subjects.FOLLOW_NUDGE)
    if len(created) > _MOST_NAMED:
        await transport.nudge(subjects.RELAY_NUDGE)
        return
    submissions = ((one.submission, one.id) for one in created)
    queued = [
        QueuedTask(said.workspace, said.agent_type, task_id)
        for said, task_id in submissions
        if not said.is_delayed and not said.route
    ]
    await announce_queued(transport, queued)


async def announce_queued(transport: JetStream, queued: Sequence[QueuedTask]) -> None:
    """Send hints of queued tasks. A lost hint costs only time: the commands are in the log."""
    if len(queued) <= _MOST_NAMED:
        for task in queued:
            await transport.nudge(subjects.task_nudge(task.workspace, task.agent_type), task.id.encode())
            failpoint.reach("hint.sent")
    await transport.nudge(subjects.RELAY_NUDGE)
