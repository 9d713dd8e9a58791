"""Tell the relay, and one worker of the pool, of tasks that were submitted just now."""

from __future__ import annotations

from collections.abc import Sequence

from grns.model import subjects
from grns.nats import JetStream
from grns.tasks.submit import Prepared

# Of more tasks than these only the relay is told: their commands share messages.
_MOST_NAMED = 8


async def announce(transport: JetStream, created: Sequence[Prepared]) -> None:
    """Send hints once the tasks have committed. A lost hint costs only time: the commands are in the log."""
    if len(created) <= _MOST_NAMED:
        for one in created:
            said = one.submission
            if not said.delay_seconds:
                await transport.nudge(subjects.task_nudge(said.workspace, said.agent_type), one.id.encode())
    await transport.nudge(subjects.RELAY_NUDGE)
