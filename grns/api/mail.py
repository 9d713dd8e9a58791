"""Mail between agents: send, poll, acknowledge, and read a conversation."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any
from uuid import UUID

from fastapi import Query, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from grns.access.keys import ended_key
from grns.api.access import Agent, Reader
from grns.api.agent import AgentName
from grns.api.answer import Answer
from grns.api.context import ApiContext
from grns.api.page import Cursor, Limit, PageOf, answer
from grns.api.queue import TokenRequest, disconnected, verified
from grns.api.request import Body, around, strict_body
from grns.api.route import router
from grns.model.json import Limits
from grns.model.mail import Mail, Sent
from grns.model.submission import Token
from grns.tasks.mail import look_until

routes = router("mail")

_About = Annotated[str, Field(pattern=r"^[!-~]{1,128}$")]


class SendRequest(Body):
    """A message to one agent (`to`), to all of a pool (`pool`), or to all of the workspace.

    `message_id` is the id of the message: sent twice is sent once. `about` is what its conversation is about,
    such as the id of a task. A payload of more than 4,096 bytes is kept as a blob. Without `to` and `pool`,
    an answer (`reply_to`) goes to who sent the message. With the `token` of a claim, its attempt sends it.
    `secret` has paths of the payload, such as `accounts.*.password`: they are stored encrypted, shown as
    `•••`, and given to the agent alone.
    """

    type: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
    payload: dict[str, Any] = Field(default_factory=dict)
    to: Token | None = None
    pool: Token | None = None
    sender: Token | None = None
    about: _About | None = None
    reply_to: UUID | None = None
    message_id: UUID | None = None
    token: str | None = None
    secret: Annotated[list[str], Field(max_length=32)] = Field(default_factory=list)
    expires_seconds: Annotated[float, Field(gt=0, le=31 * 86_400, allow_inf_nan=False)] = 7 * 86_400.0


class PollRequest(Body):
    """How many messages to return at most, and how long to wait for the first one."""

    limit: Annotated[int, Field(ge=1, le=1000, strict=True)] = 100
    wait_seconds: Annotated[float, Field(ge=0, le=60, allow_inf_nan=False, strict=True)] = 0.0


class PollResponse(BaseModel):
    """The messages that the agent has not acknowledged, oldest first."""

    items: list[Mail]


class AckRequest(Body):
    """The ids of the messages that the agent has processed."""

    ids: Annotated[list[UUID], Field(min_length=1, max_length=1000)]


class AckResponse(BaseModel):
    """How many messages were open."""

    acked: int


def _bodies(context: ApiContext) -> Limits:
    return around(context.payload_limits)


@routes.post("/mail", response_model=Sent, status_code=201)
async def send_mail(
    request_context: Agent,
    body: Annotated[SendRequest, strict_body(SendRequest, _bodies, code="bad_message")],
) -> Response:
    """Send a message to agents. Each gets it until it acknowledges it, also if it is away now."""
    said = None if body.token is None else TokenRequest.model_construct(token=body.token)
    shown = None if said is None else await verified(request_context, said)
    sender = request_context.principal.as_agent(body.sender)
    by = (None, None, None) if shown is None else (shown.task_id, shown.attempt, shown.lease_id)
    async with request_context.writing() as database:
        made = await request_context.client(database).mail.send_by(
            by, body.type, body.payload, to=body.to, pool=body.pool, sender=sender, about=body.about,
            reply_to=body.reply_to, message_id=body.message_id, expires=body.expires_seconds,
            secret=body.secret,
        )  # fmt: skip
        await request_context.client(database).mail.tell(body.to)
    return Answer(Sent(made), status_code=201)


@routes.get("/mail", response_model=PageOf[Mail])
async def list_mail(
    request_context: Reader,
    about: Annotated[str | None, Query(description="Those of one conversation.", max_length=128)] = None,
    to: Annotated[Token | None, Query(description="Those to one agent.")] = None,
    is_open: Annotated[bool, Query(description="Those that are not acknowledged.")] = False,
    text: Annotated[
        str | None,
        Query(description="Those with these words, such as `quarterly rep*`.", max_length=1000),
    ] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """List messages, oldest first, also of those that were acknowledged. None is handed out."""
    async with request_context.reading() as database:
        return answer(
            await request_context.client(database).mail.list(
                about=about, to=to, is_open=is_open, text=text, limit=limit, after=cursor
            )
        )


@routes.post("/agents/{name}/mail/poll", response_model=PollResponse)
async def poll_mail(
    request: Request,
    request_context: Agent,
    body: Annotated[PollRequest, strict_body(PollRequest, code="bad_poll")],
    name: AgentName,
) -> Response:
    """Return the messages that an agent has not acknowledged, oldest first. Wait if there is none."""

    request_context.check_agent(name)
    async with request_context.reading() as database:
        await request_context.client(database).mail.check(name)

    async def look() -> Sequence[Mail]:  # who waits holds no connection
        async with request_context.reading() as database:
            return await request_context.client(database).mail.look(name, body.limit)

    context, principal = request_context.context, request_context.principal
    looking = asyncio.ensure_future(
        look_until(look, context.transport, request_context.workspace, name, wait=body.wait_seconds)
    )
    gone = asyncio.ensure_future(disconnected(request))
    with context.agent_claims.places.place(principal), context.key_watch.over(principal, looking.cancel):
        try:
            await asyncio.wait({looking, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            is_done = looking.done()
            looking.cancel()
    if not is_done:  # the client has gone
        return Response(status_code=204)
    if looking.cancelled():
        raise ended_key()
    return Answer({"items": looking.result()})


@routes.post("/agents/{name}/mail/ack", response_model=AckResponse)
async def ack_mail(
    request_context: Agent,
    body: Annotated[AckRequest, strict_body(AckRequest, code="bad_ack")],
    name: AgentName,
) -> Response:
    """Acknowledge messages: they are not handed out again. What was never handed out stays."""
    request_context.check_agent(name)
    async with request_context.writing() as database:
        mail = request_context.client(database).mail
        return Answer({"acked": await mail.ack(name, body.ids)})
