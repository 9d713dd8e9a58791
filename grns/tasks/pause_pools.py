"""Pause pools: nothing more of them is claimed, running tasks continue.

A row in Postgres pauses a pool: every claim reads it. The durables of its priority subjects are paused only
to save deliveries of tasks that no worker may claim: for a minute at a time, as long as the row is there. If
the broker does not hear of the end of a pause, they resume within a minute; until then polling finds tasks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime

from grns.errors import GrnsError, InvalidInputError
from grns.model import subjects
from grns.nats import JetStream
from grns.postgres.database import Database, Session
from grns.tasks import pauses as pause
from grns.tasks.pauses import Pause

_PAUSE_SECONDS = 60.0
_LONGEST_REASON = 1000
_PAGE = 50


class PoolPauses:
    """Pauses and resumes the pools of one workspace. `actor` is who asks, as the log will name them."""

    def __init__(self, *, database: Database | Session, transport: JetStream, workspace: str) -> None:
        self._database = database
        self._transport = transport
        self._workspace = workspace

    async def pause(
        self,
        agent_type: str,
        task_type: str | None = None,
        *,
        actor: str,
        reason: str | None = None,
        until: float | datetime | None = None,
    ) -> Pause:
        """Pause a pool, or one task type of it, until then, for so many seconds, or until it is resumed.

        No claim that begins later takes anything of it. One that is paused already is from now on paused
        for this reason and until this time. Raises `InvalidInputError`.
        """
        _check(agent_type, task_type)
        if reason is not None and (len(reason) > _LONGEST_REASON or "\x00" in reason):
            raise InvalidInputError(
                "bad_reason", f"a reason has no NUL and at most {_LONGEST_REASON} characters"
            )
        begun = await pause.begin(
            self._database,
            workspace=self._workspace,
            agent_type=agent_type,
            task_type=task_type,
            actor=actor,
            reason=reason,
            until=until,
        )
        if task_type is None:
            await _pause_subjects(self._transport, begun)
        await self._transport.nudge(subjects.RELAY_NUDGE)
        return begun

    async def resume(self, agent_type: str, task_type: str | None = None, *, actor: str) -> Pause | None:
        """End a pause, and return what it was; None where there was none. Raises `InvalidInputError`.

        That of a whole pool ends none of its task types. Raises ConflictError if a budget has paused it.
        """
        _check(agent_type, task_type)
        ended = await pause.end(
            self._database,
            workspace=self._workspace,
            agent_type=agent_type,
            task_type=task_type,
            actor=actor,
        )
        if ended is not None and task_type is None:
            await _set_subjects(self._transport, self._workspace, agent_type, 0.0)
        await self._transport.nudge(subjects.RELAY_NUDGE)
        return ended


async def tell_broker(transport: JetStream, changed: Sequence[tuple[Pause, bool]]) -> None:
    """Resume the priority subjects of pools whose pauses have ended; `PausedSubjects` sees to the others."""
    for one, has_begun in changed:
        if not has_begun and transport.is_connected:
            await _set_subjects(transport, one.workspace, one.agent_type, 0.0)
    if changed:
        await transport.nudge(subjects.RELAY_NUDGE)


class PausedSubjects:
    """Keeps the priority subjects of paused pools paused: of some pools at a time, again and again."""

    def __init__(self, *, database: Database, transport: JetStream) -> None:
        self._database = database
        self._transport = transport
        self._after = ("", "")

    async def step(self) -> bool:
        """Look after some pools; True while there are more of them."""
        if not self._transport.is_connected:
            return False
        found = await pause.of_whole_pools(self._database, self._after, _PAGE)
        for one in found:
            await _pause_subjects(self._transport, one)
        is_more_left = len(found) == _PAGE
        self._after = (found[-1].workspace, found[-1].agent_type) if is_more_left else ("", "")
        return is_more_left


def _check(agent_type: str, task_type: str | None) -> None:
    subjects.agent_type(agent_type)
    if task_type is not None:
        subjects.token(task_type, name="task_type")


async def _pause_subjects(transport: JetStream, of: Pause) -> None:
    left = of.left_seconds
    await _set_subjects(
        transport, of.workspace, of.agent_type, _PAUSE_SECONDS if left is None else min(left, _PAUSE_SECONDS)
    )


async def _set_subjects(transport: JetStream, workspace: str, agent_type: str, seconds: float) -> None:
    """Pause a pool's priority subjects for so long, or resume them, if the broker is there."""

    async def set_subject(priority: int) -> None:
        with suppress(GrnsError):
            await transport.pause(subjects.priority_subject(workspace, agent_type, priority), seconds=seconds)

    await asyncio.gather(*(set_subject(priority) for priority in subjects.PRIORITIES))
