"""Agents by name: register and list them, note their heartbeats, and tell them to end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

from pydantic import BaseModel, ValidationError

from grns.errors import ConflictError, InvalidInputError, NotFoundError, RateLimitedError
from grns.model import subjects
from grns.model.agent import (
    HEALTHS,
    Agent,
    AgentHealth,
    AgentHeartbeat,
    AgentOrder,
    AgentProfile,
    AgentWork,
    NamedHeartbeat,
    NamedOrder,
    Order,
)
from grns.model.envelope import first_problem
from grns.model.json import Limits, dumps, loads_stored
from grns.postgres import audit_log
from grns.postgres.batch import Batch
from grns.postgres.database import Connection, Database, Row, Session, build, run
from grns.postgres.paging import Page, cursor, page_of, parts

ModelT = TypeVar("ModelT", bound=BaseModel)

MOST_AGENTS = 10_000
"""Agents of a workspace at most: clients may invent names."""
MOST_WOKEN = 1000
"""Agents of a workspace at most that are woken: each look is at all of them."""
_MOST_TASKS = 1000
_HELD_PAUSES = (0.05, 0.05, 0.05, 0.0)
_METADATA = Limits(document_bytes=16 * 1024)


class Agents:
    """Agents of one workspace: `client.agents`."""

    def __init__(self, database: Database | Session, workspace: str, actor: str | None) -> None:
        self._database = database
        self._workspace = workspace
        self._actor = actor

    async def put(self, name: str, *, pool: str, **profile: Any) -> Agent:
        """Register an agent, or replace what is registered. Its lives and its orders stay.

        Args:
            name: its name: 1 to 64 of A-Z a-z 0-9 _ -.
            pool: the pool whose tasks it runs.
            profile: fields of `grns.AgentProfile`; those that are left out get their defaults.

        Raises:
            InvalidInputError: `bad_agent`: a field is invalid.
            RateLimitedError: the workspace has 10,000 agents, or 1,000 that are woken.

        Example:
            await client.agents.put("coder-1", pool="coder", model="small-1", capabilities=["python"])
        """
        subjects.token(name, name="name")
        said = checked(AgentProfile, {"agent_type": pool, **profile})
        metadata = None if said.metadata is None else dumps(said.metadata, _METADATA)
        async with self._database.transaction() as connection:
            rows = await run(
                connection, "put_agent", self._workspace, name, said.agent_type, said.title, said.model,
                list(said.capabilities), said.max_concurrent_tasks, said.heartbeat_interval_seconds,
                said.stale_threshold_seconds, metadata, MOST_AGENTS,
                said.agent_url, said.coordinator_enabled, MOST_WOKEN,
            )  # fmt: skip
            if not rows:
                raise RateLimitedError(
                    f"workspace {self._workspace} has {MOST_AGENTS:,} agents, or {MOST_WOKEN:,} that are"
                    " woken: delete some"
                )
            event = "registered" if rows[0]["created"] else "changed"
            await self._note(connection, name, said.agent_type, event)
        return await self.get(name)

    async def get(self, name: str) -> Agent:
        """Return an agent. Raises NotFoundError."""
        found = await self._find(1, name=name)
        if not found:
            raise self._missing(name)
        return found[0]

    async def list(
        self,
        *,
        pool: str | None = None,
        health: str | None = None,
        capability: str | None = None,
        limit: int = 50,
        after: str | None = None,
    ) -> Page[Agent]:
        """Return a page of agents, by name.

        Args:
            pool: only those of this pool.
            health: only those of this health: `healthy`, `degraded`, `stale`, `dead`, `stopped` or `absent`.
            capability: only those that have it.
            limit: 1 to 1,000.
            after: `next_cursor` of the page before.

        Raises:
            InvalidInputError: an argument is invalid.

        Example:
            for agent in (await client.agents.list(capability="python")).rows:
                print(agent.name, agent.health, agent.status)
        """
        if health is not None and health not in HEALTHS:
            raise InvalidInputError("bad_parameter", f"the health of an agent is {', '.join(HEALTHS)}")
        if not 1 <= limit <= 1000:
            raise InvalidInputError("bad_limit", "limit is 1 to 1,000")
        last = "" if after is None else _place(after)
        found = await self._find(limit + 1, pool=pool, health=health, capability=capability, after=last)
        return page_of(found, limit, lambda agent: cursor(agent.name))

    async def health(self, name: str) -> AgentHealth:
        """Return how an agent is. Raises NotFoundError."""
        agent = await self.get(name)
        return AgentHealth(**{field.name: getattr(agent, field.name) for field in fields(AgentHealth)})

    async def tasks(
        self, name: str, *, status: Literal["running", "queued"] | None = None, limit: int = 100
    ) -> Sequence[AgentWork]:
        """Return the tasks that an agent runs, the oldest first, and those that wait for it alone.

        Args:
            name: the agent.
            status: only those that it runs, or only those in the queue.
            limit: 1 to 1,000.

        Raises:
            NotFoundError: there is no such agent.
        """
        await self.get(name)
        most = max(1, min(limit, _MOST_TASKS))
        return await self._database.fetch(AgentWork, "list_agent_tasks", self._workspace, name, most, status)

    async def terminate(
        self, name: str, *, reason: str | None = None, graceful: bool = True, life: str | None = None
    ) -> Agent:
        """Tell an agent to end. It learns of it with its next heartbeat, renewal or claim.

        The order holds for the life that it has now: a later one works again.

        Args:
            name: its name.
            reason: why; it is shown and logged.
            graceful: True to let it finish its tasks, False to end at once: if it still has tasks after the
                grace period (`GRNS_AGENT_GRACE_SECONDS`), they are taken from it and run elsewhere.
            life: `agent_id` of the life that you mean. Defaults to the present one.

        Raises:
            NotFoundError: there is no such agent.
            ConflictError: it is not there, or has begun another life.
        """
        agent = await self.get(name)
        if agent.health in ("absent", "stopped"):
            raise ConflictError(f"agent {name} is {agent.health}")
        return await self._order(name, "drain" if graceful else "stop", reason, life or agent.agent_id)

    async def resume(self, name: str) -> Agent:
        """Take back the order that an agent was given. Raises NotFoundError."""
        return await self._order(name, None, None)

    async def delete(self, name: str) -> Agent:
        """Forget an agent that is not there, and return what it was.

        Raises:
            NotFoundError: there is no such agent.
            ConflictError: it is there.
        """
        agent = await self.get(name)
        async with self._database.transaction() as connection:
            if not await run(connection, "delete_agent", self._workspace, name):
                raise ConflictError(f"agent {name} is {agent.health}: terminate it first")
            await self._note(connection, name, agent.agent_type, "deleted")
        return agent

    async def _order(
        self, name: str, order: Order | None, reason: str | None, life: str | None = None
    ) -> Agent:
        async with self._database.transaction() as connection:
            rows = await run(
                connection, "order_agent", self._workspace, name, order, self._actor, reason, life
            )
            if not rows and life is not None:
                raise ConflictError(f"agent {name} has begun another life")
            if not rows:
                raise self._missing(name)
            event = "resumed" if order is None else f"{order}_requested"
            said = {"agent_id": rows[0]["agent_id"], "reason": reason}
            await self._note(connection, name, rows[0]["agent_type"], event, **said)
        return await self.get(name)

    async def _note(
        self, connection: Connection, name: str, agent_type: str, event: str, **said: Any
    ) -> None:
        kind, payload = f"evt.agent.{agent_type}.{event}", {"agent": name, "agent_type": agent_type, **said}
        await audit_log.note(
            connection, workspace=self._workspace, kind=kind, actor=self._actor, payload=payload
        )

    async def _find(
        self,
        limit: int,
        *,
        name: str | None = None,
        pool: str | None = None,
        health: str | None = None,
        capability: str | None = None,
        after: str = "",
    ) -> Sequence[Agent]:
        said = (self._workspace, name, pool, health, capability, after, limit)
        return [_read(row) for row in await self._database.run("list_agents", *said)]

    def _missing(self, name: str) -> NotFoundError:
        return NotFoundError(f"there is no agent {name[:64]} in workspace {self._workspace}")


# The key of an agent: its workspace and name. The orders of agents, by their keys.
_Name: TypeAlias = tuple[str, str]
_Orders: TypeAlias = dict[_Name, AgentOrder]


class _Said(NamedTuple):
    workspace: str
    name: str
    heartbeat: AgentHeartbeat
    life: str | None


class Heartbeats:
    """Notes heartbeats; those that come at the same time share a statement."""

    def __init__(self, database: Database, *, batch_limit: int = 500) -> None:
        self._database = database
        self._most = batch_limit
        self._batch: Batch[_Said, AgentOrder | None] = Batch(self._send, limit=batch_limit)

    async def beat(
        self, workspace: str, name: str, heartbeat: AgentHeartbeat, *, life: str | None = None
    ) -> AgentOrder:
        """Note that an agent lives, and return what it is told to do.

        Args:
            workspace, name: the agent.
            heartbeat: what it says of itself.
            life: id of its life; another one than before, and the first one after `stopped` or `dead`, begins
                a new life.

        Raises:
            NotFoundError: there is no such agent.
        """
        order = await self._batch.ask(_Said(workspace, name, heartbeat, life))
        if order is None:
            raise NotFoundError(f"there is no agent {name[:64]} in workspace {workspace}: register it first")
        return order

    async def beat_many(self, workspace: str, beats: Sequence[NamedHeartbeat]) -> list[NamedOrder]:
        """Note that several agents live; return what each is told, but those that are not registered."""
        said = [_Said(workspace, one.name, one, one.agent_id) for one in beats]
        orders: list[AgentOrder | None] = []
        for start in range(0, len(said), self._most):
            orders += await self._send(said[start : start + self._most])
        return [
            NamedOrder(one.name, order.order, order.reason)
            for one, order in zip(beats, orders, strict=True)
            if order is not None
        ]

    async def _send(self, batch: Sequence[_Said]) -> list[AgentOrder | None]:
        """Note them; one whose agent another transaction holds for long is left to the next heartbeat."""
        left = {(one.workspace, one.name): one for one in batch}  # the last one of each
        orders = await self._note("beat_agents", left)
        held: _Orders = {}
        for pause in _HELD_PAUSES:
            left = {agent: one for agent, one in left.items() if agent not in orders}
            orders |= await self._note("begin_lives", left)
            held = await self._read_orders([agent for agent in left if agent not in orders])
            if not held:
                break
            await asyncio.sleep(pause)
        orders = held | orders
        return [orders.get((one.workspace, one.name)) for one in batch]

    async def _note(self, name: str, said: Mapping[_Name, _Said]) -> _Orders:
        if not said:
            return {}
        beats = [one.heartbeat for one in said.values()]
        rows = await self._database.run(
            name,
            *_columns(said),
            [one.life for one in said.values()],
            [one.status for one in beats],
            [one.current_task_id for one in beats],
            [one.progress_percent for one in beats],
            [one.current_step for one in beats],
            [one.memory_mb for one in beats],
            [one.cpu_percent for one in beats],
        )
        return _orders([*said], rows)

    async def _read_orders(self, agents: Sequence[_Name]) -> _Orders:
        if not agents:
            return {}
        return _orders(agents, await self._database.run("read_agent_orders", *_columns(agents)))


def _columns(agents: Iterable[_Name]) -> tuple[list[str], list[str]]:
    """Return workspaces and names, each as a parameter of a statement."""
    workspaces, names = zip(*agents, strict=True)
    return list(workspaces), list(names)


def _orders(agents: Sequence[_Name], rows: Sequence[Row]) -> _Orders:
    return {agents[row["place"] - 1]: AgentOrder(row["order"], row["reason"]) for row in rows}


def checked(model: type[ModelT], said: Mapping[str, Any]) -> ModelT:
    """Return what was said, checked. Raises InvalidInputError: `bad_agent`."""
    try:
        return model.model_validate(said)
    except ValidationError as error:
        raise InvalidInputError("bad_agent", first_problem(error)) from error


def _read(row: Row) -> Agent:
    metadata = row["metadata"]
    return build(Agent, {**row, "metadata": None if metadata is None else loads_stored(metadata)})


def _place(said: str) -> str:
    match parts(said):
        case [name]:
            return name
    raise InvalidInputError("bad_cursor", "the cursor is none of this list")
