"""Wakeups: agents that do not wait here are told that a task waits for them.

At a URL of theirs, or by a session that is begun for them at the spawn URL. A wakeup is only a hint, which
may be lost, and nothing depends on it: no task is handed over with it, and agents look for themselves when
they start and now and then. Postgres knows who is to be told, so it does not matter which process tells, or
which one has ended.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from pydantic import SecretStr

from grns.errors import InvalidInputError
from grns.model import wakeup_url
from grns.model.json import Limits, dumps, loads_stored
from grns.model.secret import mask_text
from grns.model.url_policy import Destination
from grns.postgres import audit_log
from grns.postgres.database import Database, Row, run
from grns.runtime.service import PeriodicLoop
from grns.telemetry.signal import Emit
from grns.telemetry.task_signals import AgentNudged, NudgeFailed, SessionSpawned
from grns.webhooks.http import HttpSender, SendResult

LOOK_SECONDS = 2.0
_AGAIN_SECONDS, _LONGEST_PAUSE_SECONDS = 30.0, 600.0
_HERE_SECONDS = 5.0
_AT_ONCE = 20
_TITLE_CHARACTERS = 30
_LONGEST_KEY = 255
_LARGE = Limits(document_bytes=1024 * 1024, depth=80, nodes=25_000)  # payload and checkpoint


@dataclass(frozen=True, slots=True)
class SpawnTarget:
    """Where sessions of agents are begun, and the secret to show there."""

    url: Destination
    secret: SecretStr | None = None

    @property
    def headers(self) -> dict[str, str]:
        """Headers of a request."""
        return {} if self.secret is None else {"Authorization": f"Bearer {self.secret.get_secret_value()}"}


class Wakeups:
    """Looks every two seconds for agents that have a waiting task and are not here."""

    def __init__(
        self,
        *,
        database: Database,
        hosts: frozenset[str],
        http: HttpSender,
        emit: Emit,
        spawn: SpawnTarget | None = None,
    ) -> None:
        self._database = database
        self._hosts = hosts
        self._http = http
        self._emit = emit
        self._spawn = spawn
        self._loop = PeriodicLoop("agent_nudges", self.tick, emit=emit)
        self._running: asyncio.Task[None] | None = None

    def check(self, url: str) -> Destination:
        """Return the URL of an agent, parsed. Raises InvalidInputError if its host is not allowed."""
        return wakeup_url.check(url, self._hosts)

    def begin(self) -> None:
        """Begin to look, if the settings name hosts."""
        if (self._hosts or self._spawn is not None) and self._running is None:
            self._running = asyncio.create_task(self._loop.run())

    async def close(self) -> None:
        """End the looks."""
        self._loop.stop()
        if self._running is not None:
            await asyncio.wait({self._running})

    async def tick(self) -> float:
        """Tell the agents that have a waiting task; return the seconds until the next look."""
        rows = await self._database.run(
            "take_wakeups", _AGAIN_SECONDS, _HERE_SECONDS, _LONGEST_PAUSE_SECONDS, _AT_ONCE,
            self._spawn is not None, bool(self._hosts),
        )  # fmt: skip
        await asyncio.gather(*(self._tell(row) for row in rows))
        return 0.0 if len(rows) == _AT_ONCE else LOOK_SECONDS

    async def _tell(self, agent: Row) -> None:
        host = ""
        try:
            if agent["is_spawned"] and self._spawn is not None:
                host = self._spawn.url.host_and_port
                error = await self._begin_session(agent, self._spawn)
            else:
                host, error = await self._nudge(agent)
        except InvalidInputError as unfit:  # one agent does not hold up the others
            error = unfit.code
        if error is None:
            return
        for row in await self._database.run(
            "note_failed_wakeup", agent["workspace"], agent["name"], _AGAIN_SECONDS, _LONGEST_PAUSE_SECONDS,
            agent["is_spawned"],
        ):  # fmt: skip
            self._emit(NudgeFailed(agent["agent_type"], host, error, row["pause_seconds"]))

    async def _nudge(self, agent: Row) -> tuple[str, str | None]:
        """Send a nudge; return the host, and what went wrong."""
        try:
            to = self.check(agent["agent_url"])
        except InvalidInputError:  # the setting has changed, or who registered it did not pass the API
            return "", "host_not_allowed"
        said = {"workspace": agent["workspace"], "agent_type": agent["agent_type"], "agent": agent["name"]}
        error = (await self._http.post(to, {}, dumps(said).encode())).error
        if error is None:
            self._emit(AgentNudged(agent["agent_type"], to.host_and_port))
        return to.host_and_port, error

    async def _begin_session(self, agent: Row, spawn: SpawnTarget) -> str | None:
        """Ask for a session of an agent, and keep its key; return what went wrong."""
        answer = await self._http.post(spawn.url, spawn.headers, dumps(_order_of(agent), _LARGE).encode())
        if answer.error is not None:
            return answer.error
        key = _session_key(answer)
        if key is None:
            return "bad_answer"
        async with self._database.transaction() as connection:
            await run(connection, "note_session", agent["workspace"], agent["name"], key)
            await audit_log.note(
                connection,
                workspace=agent["workspace"],
                kind=f"evt.agent.{agent['agent_type']}.spawned",
                actor=None,
                payload={
                    "agent": agent["name"], "agent_type": agent["agent_type"], "task_id": agent["task_id"],
                    "session_key": key,
                },
                task_id=agent["task_id"],
            )  # fmt: skip
        self._emit(SessionSpawned(agent["agent_type"], agent["name"], agent["task_id"], agent["trace_id"]))
        return None


def _order_of(agent: Row) -> dict[str, Any]:
    """Return the request for a session."""
    checkpoint = agent["checkpoint"]
    return {
        "workspaceId": agent["workspace"],
        "agentId": agent["name"],
        "taskId": agent["task_id"],
        "label": f"task:{agent['task_id']}:{agent['task_type'][:_TITLE_CHARACTERS]}",
        "context": {
            "taskTitle": agent["task_type"],
            "taskDescription": None,
            "inputContext": loads_stored(mask_text(agent["payload"])),
            "checkpointData": None if checkpoint is None else loads_stored(mask_text(checkpoint)),
        },
    }


def _session_key(answer: SendResult) -> str | None:
    try:
        key = loads_stored(answer.body.decode())["session"]["sessionKey"]
    except (ValueError, KeyError, TypeError):
        return None
    return key if isinstance(key, str) and 0 < len(key) <= _LONGEST_KEY and key.isprintable() else None
