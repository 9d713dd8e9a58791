"""The queue, for agents that work over HTTP: they ask for a task, keep it, and say what came of it."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Annotated, Any

from fastapi import Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from grns.access.keys import ended_key
from grns.api.access import Agent, Reader, RequestContext
from grns.api.answer import Answer
from grns.api.request import Body, around, strict_body
from grns.api.route import BEGAN_AT, router
from grns.errors import GrnsError, LeaseLostError, NotFoundError
from grns.gateway.claims import AssignedTask, WaitingWorker
from grns.gateway.shared_writes import OpenDatabase
from grns.model import claim_token
from grns.model.claim_token import ClaimToken, SigningKey
from grns.model.json import dumps, loads_stored
from grns.model.outcome import Outcome, Verb
from grns.model.secret import check_clear
from grns.model.submission import AgentType, MaxAttempts, Token
from grns.stats.counts import count_states
from grns.tasks.pools import PoolState, list_pools
from grns.worker.claims import Claimant

routes = router("queue")

_MOST_POOLS = 100
_RELEASED = "released"
Seconds = Annotated[float, Field(ge=0, le=366 * 86_400, allow_inf_nan=False, strict=True)]
_Text = Annotated[str, Field(max_length=1000)]


class ClaimRequest(Body):
    """Task types to claim, the worker's name and the time to wait.

    `agent` and `version` appear in lists of workers. `life` is another text each time that the worker starts:
    an order to end is for one life. The server bounds `wait_seconds`. The lease is `lease_seconds` unless the
    worker renews it.
    """

    agent_type: AgentType = "worker"
    task_types: Annotated[list[Token], Field(min_length=1, max_length=100)]
    agent: Token | None = None
    version: Annotated[str, Field(pattern=r"^[!-~]{1,64}$")] | None = None
    life: Annotated[str, Field(pattern=r"^[!-~]{1,64}$")] | None = None
    max_attempts: MaxAttempts | None = None
    wait_seconds: Annotated[float, Field(ge=0, le=300, allow_inf_nan=False, strict=True)] = 20.0
    lease_seconds: Annotated[float, Field(ge=1, le=86_400, allow_inf_nan=False, strict=True)] | None = None


class TokenRequest(Body):
    """A request about a claimed task, with the claim token."""

    token: Annotated[str, Field(min_length=1, max_length=2100)]


class CompleteRequest(TokenRequest):
    """Complete the task. `result` is any JSON value."""

    result: Any = None


class FailureDetail(Body):
    """An error: class, message and frames, the innermost first."""

    class_: Annotated[str, Field(alias="class", min_length=1, max_length=255)]
    message: Annotated[str, Field(max_length=4000)] = ""
    frames: Annotated[list[_Text], Field(max_length=50)] = Field(default_factory=list)


class FailRequest(TokenRequest):
    """Fail the attempt: retry after some seconds or a backoff, or not at all.

    The backoff of the task, if it has one, goes before `backoff_seconds`; `retry_after_seconds` before both.
    """

    error: FailureDetail
    retry: Annotated[bool, Field(strict=True)] = True
    retry_after_seconds: Seconds | None = None
    backoff_seconds: Seconds | None = None


class ReleaseRequest(TokenRequest):
    """Release the task. The attempt does not count."""

    reason: Annotated[str, Field(min_length=1, max_length=1000)] = _RELEASED


class SnoozeRequest(TokenRequest):
    """Put the task off. The attempt does not count."""

    after_seconds: Seconds


class ClaimedTask(BaseModel):
    """A claimed task. This is attempt `counted_attempt` of `max_attempts`.

    `checkpoint_data` is what an earlier attempt has kept; null if none has.
    """

    id: str
    task_type: str
    priority: int
    attempt: int
    counted_attempt: int
    max_attempts: int
    payload: dict[str, Any]
    trace_id: str
    checkpoint_data: Any


class ClaimResponse(BaseModel):
    """A claimed task with its claim token, which is a secret.

    The lease began after `waited_seconds`, or a moment later.
    """

    token: str
    lease_seconds: float
    waited_seconds: float
    agent_id: str
    task: ClaimedTask


class FinishResponse(BaseModel):
    """The status of the task."""

    status: str


class QueueStatus(BaseModel):
    """Task counts by status, waiting claim requests of this server by pool, and the first pools."""

    states: dict[str, int]
    total: int
    waiting: dict[str, int]
    pools: list[PoolState]
    has_more: bool


@routes.post(
    "/queue/claim",
    response_model=ClaimResponse,
    responses={204: {"description": "There was nothing to do in all that time"}},
)
async def claim_next_task(
    request: Request,
    request_context: Agent,
    body: Annotated[ClaimRequest, strict_body(ClaimRequest, code="bad_claim")],
) -> Response:
    """Claim the next task, the most urgent and oldest first. Wait if there is none."""
    # Its client has waited since it came: who shows a key waits for Postgres, too.
    began_at = request.scope.get(BEGAN_AT, time.monotonic())
    request_context.check_pool(body.agent_type)
    # Before the claim: one that could not be answered would spend an attempt.
    key = await request_context.context.token_keys.latest()
    gone = asyncio.ensure_future(disconnected(request))
    try:
        with request_context.context.key_watch.over(request_context.principal, gone.cancel):
            handed = await request_context.context.agent_claims.next_task(
                _seeking(request_context, body), gone
            )
        if gone.cancelled():
            raise ended_key()
    finally:
        gone.cancel()
    if handed is None:
        return Response(status_code=204)
    with suppress(GrnsError):  # a key that was the latest is valid for long
        key = await request_context.context.token_keys.latest()
    return Answer(_handed_out(handed, began_at, key))


@routes.post("/queue/complete", response_model=FinishResponse)
async def complete_claim(
    request_context: Agent,
    body: Annotated[
        CompleteRequest,
        strict_body(CompleteRequest, lambda context: around(context.result_limits), code="bad_completion"),
    ],
) -> Response:
    """Complete a task with its result. Repeating the request gives the same answer."""
    text = dumps(body.result, request_context.context.result_limits)
    check_clear(text)
    outcome = Outcome(Verb.SUCCEED, result=text)
    return await _written(
        request_context,
        body,
        lambda open_database, shown: request_context.context.agent_writes.finish(
            open_database, shown, outcome
        ),
    )


@routes.post("/queue/fail", response_model=FinishResponse)
async def fail_claim(
    request_context: Agent, body: Annotated[FailRequest, strict_body(FailRequest, code="bad_failure")]
) -> Response:
    """Fail an attempt. The task is retried if attempts are left, unless `retry` is false."""

    async def write(open_database: OpenDatabase, shown: ClaimToken) -> str:
        secrets = request_context.context.agent_secrets
        scrubber = await secrets.scrubber(request_context.reading_attempt, shown)
        return await request_context.context.agent_writes.fail(
            open_database,
            shown,
            error_class=body.error.class_,
            message=body.error.message,
            frames=body.error.frames,
            scrubber=scrubber,
            is_final=not body.retry,
            after_seconds=body.retry_after_seconds,
            usual_seconds=body.backoff_seconds,
        )

    return await _written(request_context, body, write)


@routes.post("/queue/snooze", response_model=FinishResponse)
async def snooze_claim(
    request_context: Agent, body: Annotated[SnoozeRequest, strict_body(SnoozeRequest, code="bad_snooze")]
) -> Response:
    """Put a task off. The attempt does not count; the next one starts after some seconds."""
    outcome = Outcome(Verb.SNOOZE, backoff_seconds=body.after_seconds)
    return await _written(
        request_context,
        body,
        lambda open_database, shown: request_context.context.agent_writes.finish(
            open_database, shown, outcome
        ),
    )


@routes.post("/queue/release", response_model=FinishResponse)
async def release_claim(
    request_context: Agent, body: Annotated[ReleaseRequest, strict_body(ReleaseRequest, code="bad_release")]
) -> Response:
    """Release a task. The attempt does not count."""

    async def write(open_database: OpenDatabase, shown: ClaimToken) -> str:
        secrets = request_context.context.agent_secrets
        scrubber = await secrets.scrubber(request_context.reading_attempt, shown)
        reason = body.reason if scrubber is None else scrubber.text(body.reason)
        return await request_context.context.agent_writes.release(open_database, shown, reason)

    return await _written(request_context, body, write)


@routes.get("/queue/status", response_model=QueueStatus)
async def read_queue_status(request_context: Reader) -> Response:
    """Return the counts of tasks and the pools."""
    async with request_context.reading() as database:
        states = await count_states(database, workspace=request_context.workspace)
        page = await list_pools(database, workspace=request_context.workspace, limit=_MOST_POOLS)
    return Answer(
        {
            "states": states,
            "total": sum(states.values()),
            "waiting": request_context.context.agent_claims.waiting(request_context.workspace),
            "pools": page.rows,
            "has_more": page.next_cursor is not None,
        }
    )


async def disconnected(request: Request) -> None:
    """Return once the client has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _seeking(request_context: RequestContext, wanted: ClaimRequest) -> WaitingWorker:
    context = request_context.context
    types = sorted(set(wanted.task_types))
    lease_seconds = wanted.lease_seconds or context.http_lease_seconds
    agent = request_context.principal.as_agent(wanted.agent)
    # One life of a worker, as far as requests tell them apart. One with a name says it: with other types, or
    # another lease, it is the same.
    said = (wanted.version or "", str(lease_seconds), *types) if agent is None else (agent, wanted.agent_type)
    parts = (request_context.workspace, request_context.actor, wanted.life or "", *said)
    digest = hashlib.sha256("\x1f".join(parts).encode()).hexdigest()[:16]
    return WaitingWorker(
        claimant=Claimant(
            agent_id=f"http-{wanted.agent_type}-{digest}",  # as the index tasks_over_http expects
            workspace=request_context.workspace,
            agent_type=wanted.agent_type,
            handled=dict.fromkeys(types, wanted.max_attempts),
            lease_seconds=lease_seconds,
            agent=agent,
            is_counted=agent is not None,
        ),
        name=agent or "http",
        version=wanted.version or "",
        principal=request_context.principal,
        wait_seconds=min(wanted.wait_seconds, context.http_wait_seconds),
    )


def _handed_out(handed: AssignedTask, began_at: float, key: SigningKey) -> dict[str, Any]:
    claim, shown = handed.claim, handed.token
    claimed_at = claim.expires_at - shown.lease_seconds
    return {
        "token": shown.reveal(key),
        "lease_seconds": shown.lease_seconds,
        "waited_seconds": max(0.0, claimed_at - began_at),
        "agent_id": shown.agent_id,
        "task": {
            "id": claim.id,
            "task_type": claim.task_type,
            "priority": claim.priority,
            "attempt": claim.attempt,
            "counted_attempt": claim.counted_attempts,
            "max_attempts": claim.attempt_limit,
            "payload": loads_stored(claim.payload),
            "trace_id": claim.trace_id,
            "checkpoint_data": handed.checkpoint,
        },
    }


async def verified(request_context: RequestContext, said: TokenRequest) -> ClaimToken:
    """Return the token that was shown. Raises NotFoundError: another workspace, Forbidden: another pool."""
    shown = await request_context.context.token_keys.verify(claim_token.read(said.token))
    if shown.workspace != request_context.workspace:
        raise NotFoundError(f"there is no such claim in workspace {request_context.workspace}")
    request_context.check_pool(shown.agent_type)
    return shown


async def _written(
    request_context: RequestContext,
    said: TokenRequest,
    write: Callable[[OpenDatabase, ClaimToken], Awaitable[str]],
) -> Answer:
    shown = await verified(request_context, said)
    try:
        status = await write(request_context.writing_attempt, shown)
    except LeaseLostError:
        request_context.context.agent_secrets.forget(shown)
        raise
    request_context.context.agent_secrets.forget(shown)
    return Answer({"status": status})
