"""Why a task is where it is: read from the tables, from the log and from the broker, and put into sentences.

It only reads, and waits for no lock. The broker is asked where it can tell something, which is of a
task that is queued; without it the rest is told all the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from grns.diagnose.daemons import read_pulse
from grns.diagnose.explain.explanation import Explanation, explain, gone
from grns.diagnose.explain.read import read_situation, read_story
from grns.diagnose.explain.snapshot import SubjectSeen, TaskSnapshot
from grns.errors import GrnsError, NotFoundError
from grns.model import subjects
from grns.model.task import TaskStatus
from grns.nats import JetStream
from grns.postgres.database import Database, Session


class Explainer:
    """Explains tasks of one workspace.

    `database` may be a session that is confined to it; `whole` is not, and is asked for the daemons alone.
    The transport may be connected or not. A key of one workspace (`is_bound`) does not learn whose
    transactions there are in the database.
    """

    def __init__(
        self,
        *,
        database: Database | Session,
        whole: Database,
        transport: JetStream,
        workspace: str,
        is_bound: bool = False,
    ) -> None:
        self._is_bound = is_bound
        self._database = database
        self._whole = whole
        self._transport = transport
        self._workspace = workspace

    async def explain(self, task_id: str) -> Explanation:
        """Return why a task is where it is, or what the log has of one that was deleted; `NotFoundError`."""
        seen = await read_situation(self._database, task_id, workspace=self._workspace)
        if seen is None:
            return await self._gone(task_id)
        if self._is_bound and seen.lock is not None:
            seen = replace(seen, lock=replace(seen.lock, pid=None, name=None))
        seen = replace(seen, pulse=await read_pulse(self._whole, _command(seen)))
        if seen.task.status is TaskStatus.QUEUED:
            seen = await self._with_subject(seen)
        return explain(seen)

    async def _gone(self, task_id: str) -> Explanation:
        history: Sequence[Mapping[str, Any]] = await read_story(
            self._database, task_id, workspace=self._workspace
        )
        if not history:
            raise NotFoundError(f"there is no task {task_id} in workspace {self._workspace}")
        return gone(task_id, self._workspace, history)

    async def _with_subject(self, seen: TaskSnapshot) -> TaskSnapshot:
        task = seen.task
        try:
            found = await self._transport.durable(
                subjects.priority_subject(task.workspace, task.agent_type, task.priority)
            )
        except GrnsError as error:
            return replace(seen, trouble=str(error))
        if found is None:
            return replace(seen, subject=SubjectSeen(exists=False))
        return replace(
            seen,
            subject=SubjectSeen(
                pending=found.pending,
                ack_pending=found.ack_pending,
                fetching=found.fetching,
                paused_seconds=found.paused_seconds,
            ),
        )


def _command(seen: TaskSnapshot) -> int | None:
    """Return the number of the latest row of the log that has a command for the task."""
    sent = [row["seq"] for row in seen.history if row["has_command"]]
    return sent[-1] if sent else None
