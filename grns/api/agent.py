"""Agents by name: register them, see whether they are there, take their heartbeats, and end them."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any, Literal

from fastapi import Path, Query
from pydantic import BaseModel, Field
from starlette.responses import Response

from grns.api.access import Agent, Operator, Reader
from grns.api.answer import Answer
from grns.api.page import Cursor, Limit, PageOf, answer
from grns.api.request import Body, strict_body
from grns.api.route import router
from grns.errors import NotFoundError, PermissionDeniedError
from grns.model import agent as model
from grns.model.field_types import AgentId
from grns.model.submission import AgentType, Token

routes = router("agents")

AgentName = Annotated[Token, Path(description="Name of the agent.")]


class ProfileRequest(Body, model.AgentProfile):
    """What is registered of an agent; fields that are left out get their defaults."""


class HeartbeatRequest(Body, model.AgentHeartbeat):
    """What an agent says of itself.

    `agent_id` is its life, such as a new UUID each time that it starts. Another one than before, and the
    first heartbeat after `stopped` or after it was dead, begins a new life, for which no earlier order holds.
    """

    agent_id: AgentId | None = None


class HeartbeatsRequest(Body):
    """What several agents say of themselves, as those of one process."""

    items: Annotated[list[model.NamedHeartbeat], Field(min_length=1, max_length=1000)]


class OrdersResponse(BaseModel):
    """What each agent is told. Those that are not registered are left out."""

    items: list[model.NamedOrder]


class TerminateRequest(Body):
    """Whether the agent may finish its tasks, and why it is to end.

    `agent_id` is the life that you mean, as you have seen it. If the agent has begun another one, it goes on.
    """

    agent_id: AgentId | None = None
    graceful: Annotated[bool, Field(strict=True)] = True
    reason: Annotated[str, Field(min_length=1, max_length=1000)] | None = None


@routes.get("/agents", response_model=PageOf[model.Agent])
async def list_agents(
    request_context: Reader,
    agent_type: Annotated[AgentType | None, Query(description="Only those of this pool.")] = None,
    health: Annotated[
        str | None,
        Query(description="`healthy`, `degraded`, `stale`, `dead`, `stopped` or `absent`.", max_length=20),
    ] = None,
    capability: Annotated[Token | None, Query(description="Only those that have it.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """List agents by name."""
    async with request_context.reading() as database:
        return answer(
            await request_context.client(database).agents.list(
                pool=agent_type, health=health, capability=capability, limit=limit, after=cursor
            )
        )


@routes.get("/agents/{name}", response_model=model.Agent)
async def read_agent(request_context: Reader, name: AgentName) -> Response:
    """Return an agent: what is registered, whether it is there, and what it does."""
    async with request_context.reading() as database:
        return Answer(await request_context.client(database).agents.get(name))


@routes.get("/agents/{name}/health", response_model=model.AgentHealth)
async def read_agent_health(request_context: Reader, name: AgentName) -> Response:
    """Return whether an agent is there, and what it does."""
    async with request_context.reading() as database:
        return Answer(await request_context.client(database).agents.health(name))


@routes.put("/agents/{name}", response_model=model.Agent)
async def put_agent(
    request_context: Agent,
    body: Annotated[ProfileRequest, strict_body(ProfileRequest, code="bad_agent")],
    name: AgentName,
) -> Response:
    """Register an agent, or replace what is registered. Its lives and its orders stay."""
    request_context.check_agent(name)
    request_context.check_pool(body.agent_type)
    if body.agent_url is not None:
        request_context.context.agent_claims.check_url(body.agent_url)
    profile: dict[str, Any] = body.model_dump(exclude={"agent_type"})
    async with request_context.writing() as database:
        agents = request_context.client(database).agents
        if request_context.principal.pools:  # it may not take one from a pool that is not its own
            with suppress(NotFoundError):
                request_context.check_pool((await agents.get(name)).agent_type)
        return Answer(await agents.put(name, pool=body.agent_type, **profile))


@routes.delete("/agents/{name}", response_model=model.Agent)
async def delete_agent(request_context: Operator, name: AgentName) -> Response:
    """Forget an agent that is not there, and return what it was."""
    async with request_context.writing() as database:
        return Answer(await request_context.client(database).agents.delete(name))


@routes.post("/agents/{name}/heartbeat", response_model=model.AgentOrder)
async def beat_agent(
    request_context: Agent,
    body: Annotated[HeartbeatRequest, strict_body(HeartbeatRequest, code="bad_heartbeat")],
    name: AgentName,
) -> Response:
    """Say that an agent lives, and learn what it is told to do.

    Claims and renewals of an HTTP worker with this name count as heartbeats, too.
    """
    request_context.check_agent(name)
    if request_context.principal.pools:
        async with request_context.reading() as database:
            found = await request_context.client(database).agents.get(name)
        request_context.check_pool(found.agent_type)
    heartbeat = model.AgentHeartbeat(**body.model_dump(exclude={"agent_id"}))
    return Answer(
        await request_context.context.heartbeats.beat(
            request_context.workspace, name, heartbeat, life=body.agent_id
        )
    )


@routes.post("/agents/heartbeats", response_model=OrdersResponse)
async def beat_agents(
    request_context: Agent,
    body: Annotated[HeartbeatsRequest, strict_body(HeartbeatsRequest, code="bad_heartbeat")],
) -> Response:
    """Say that several agents live, and learn what each is told to do."""
    for one in body.items:
        request_context.check_agent(one.name)
    if request_context.principal.pools:
        raise PermissionDeniedError("this key is bound to pools: send the heartbeat of each agent alone")
    heartbeats = request_context.context.heartbeats
    return Answer({"items": await heartbeats.beat_many(request_context.workspace, body.items)})


@routes.get("/agents/{name}/tasks", response_model=list[model.AgentWork])
async def list_agent_tasks(
    request_context: Reader,
    name: AgentName,
    status: Annotated[
        Literal["running", "queued"] | None,
        Query(description="Only those that it runs, or that wait for it."),
    ] = None,
    limit: Limit = 50,
) -> Response:
    """List the tasks that an agent runs, the oldest first, and those in the queue that are for it alone."""
    async with request_context.reading() as database:
        agents = request_context.client(database).agents
        return Answer(await agents.tasks(name, status=status, limit=limit))


@routes.post("/agents/{name}/terminate", response_model=model.Agent)
async def terminate_agent(
    request_context: Operator,
    body: Annotated[TerminateRequest, strict_body(TerminateRequest, code="bad_termination")],
    name: AgentName,
) -> Response:
    """Tell an agent to end: it learns of it with its next heartbeat, renewal or claim."""
    async with request_context.writing() as database:
        return Answer(
            await request_context.client(database).agents.terminate(
                name, reason=body.reason, graceful=body.graceful, life=body.agent_id
            )
        )


@routes.post("/agents/{name}/resume", response_model=model.Agent)
async def resume_agent(request_context: Operator, name: AgentName) -> Response:
    """Take back the order that an agent was given."""
    async with request_context.writing() as database:
        return Answer(await request_context.client(database).agents.resume(name))
