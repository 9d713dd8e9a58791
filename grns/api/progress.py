"""What HTTP workers report while they run a task: that they live, how far they are, and checkpoints."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from grns.api.access import Agent, RequestContext
from grns.api.answer import Answer
from grns.api.queue import Seconds, TokenRequest, verified
from grns.api.request import around, strict_body
from grns.api.route import router
from grns.api.task import TaskId
from grns.errors import NotFoundError
from grns.model.claim_token import ClaimToken
from grns.model.failure import clean
from grns.model.json import dumps
from grns.model.log_line import LEVELS, LONGEST_MESSAGE, Level, Line
from grns.model.report import LONGEST_STEP
from grns.model.secret import Scrubber, check_clear
from grns.model.usage import usage_of
from grns.worker.prices import priced
from grns.worker.progress import LEAST_STALL_SECONDS, Report
from grns.worker.task_logger import fields_of, message_of

routes = router("queue")

_Tokens = Annotated[int, Field(ge=0, strict=True)]


class LoggedLine(BaseModel):
    """A line for the log of the task. With a `number`, which grows within the attempt, it is kept once."""

    level: Level = "INFO"
    message: Annotated[str, Field(min_length=1, max_length=LONGEST_MESSAGE)]
    fields: dict[str, Any] | None = None
    number: Annotated[int, Field(ge=1, le=2**62, strict=True)] | None = None


class UsedItem(BaseModel):
    """What the attempt has used. Of the same `item` of an attempt the first one counts.

    `input_tokens` has those that were read from a cache or written to it, `output_tokens` those of reasoning;
    `cost` is in US dollars.
    """

    model_config = ConfigDict(extra="forbid")

    item: str
    model: str | None = None
    input_tokens: _Tokens = 0
    output_tokens: _Tokens = 0
    cache_read_tokens: _Tokens = 0
    cache_write_tokens: _Tokens = 0
    reasoning_tokens: _Tokens = 0
    compute_seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    cost: Annotated[float, Field(ge=0, allow_inf_nan=False)] | str | None = None


class RenewRequest(TokenRequest):
    """Renew the lease, and report progress if there is any.

    `checkpoint_data` is any JSON value but null: the next attempt gets it. With `stall_seconds`, the attempt
    is ended if it reports nothing for so long. `log` are lines for the log of the task, `usage` is what the
    attempt has used.
    """

    progress_percent: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False, strict=True)] | None = None
    current_step: Annotated[str, Field(max_length=LONGEST_STEP)] | None = None
    checkpoint_data: Any = None
    remaining_seconds: Seconds | None = None
    stall_seconds: Annotated[Seconds, Field(ge=LEAST_STALL_SECONDS)] | None = None
    log: Annotated[list[LoggedLine], Field(max_length=100)] | None = None
    usage: Annotated[list[UsedItem], Field(max_length=100)] | None = None


class RenewResponse(BaseModel):
    """The new lease. If `cancel_requested` is true, release the task.

    If `is_overdue` is true, the attempt takes longer than expected: it is ended if it reports no progress.
    `order` is what the worker's agent is told: `drain` to claim no more, `stop` to release its tasks, too.
    """

    lease_seconds: float
    cancel_requested: bool
    is_overdue: bool
    order: str | None


@routes.post("/queue/renew", response_model=RenewResponse)
async def renew_claim(
    request_context: Agent,
    body: Annotated[
        RenewRequest,
        strict_body(RenewRequest, lambda context: around(context.result_limits), code="bad_renewal"),
    ],
) -> Response:
    """Renew the lease of a task, and report progress. The answer says whether it is to be cancelled."""
    return await _renewed(request_context, body, await verified(request_context, body))


@routes.patch("/tasks/{task_id}/progress", response_model=RenewResponse)
async def report_progress(
    request_context: Agent,
    body: Annotated[
        RenewRequest,
        strict_body(RenewRequest, lambda context: around(context.result_limits), code="bad_progress"),
    ],
    task_id: TaskId,
) -> Response:
    """Report the progress of a claimed task, and renew its lease: as `POST /queue/renew`."""
    shown = await verified(request_context, body)
    if shown.task_id != task_id:
        raise NotFoundError(f"this token is of another task than {task_id}")
    return await _renewed(request_context, body, shown)


async def _renewed(request_context: RequestContext, said: RenewRequest, shown: ClaimToken) -> Answer:
    is_report = said.model_dump(exclude={"token"}, exclude_none=True)
    checkpoint = None
    if said.checkpoint_data is not None:
        checkpoint = dumps(said.checkpoint_data, request_context.context.result_limits)
        check_clear(checkpoint)
    used = tuple(priced(usage_of(**one.model_dump())) for one in said.usage or ()) or None

    async def report() -> Report:
        scrubber = None
        if said.current_step is not None or said.log or checkpoint is not None:
            # Also for a checkpoint: it takes the place of one that may have secrets.
            secrets = request_context.context.agent_secrets
            scrubber = await secrets.scrubber(request_context.reading_attempt, shown)
        # Many lines may take long: in a thread, other requests go on.
        lines = (
            _lines(said.log, None)
            if scrubber is None
            else await asyncio.to_thread(_lines, said.log, scrubber)
        )
        return Report(
            said.progress_percent,
            None if said.current_step is None else clean(said.current_step, scrubber),
            checkpoint,
            said.remaining_seconds,
            said.stall_seconds,
            lines,
            used,
        )

    renewal = await request_context.context.agent_writes.renew(
        request_context.writing_attempt, shown, report=report if is_report else None
    )
    return Answer(
        {
            "lease_seconds": shown.lease_seconds,
            "cancel_requested": renewal.is_cancel_requested,
            "is_overdue": renewal.is_overdue,
            "order": renewal.order,
        }
    )


def _lines(said: list[LoggedLine] | None, scrubber: Scrubber | None) -> tuple[Line, ...] | None:
    if not said:
        return None
    first, now = time.time_ns() // 1000, time.monotonic()
    return tuple(
        Line(
            first + place if line.number is None else line.number, now, LEVELS[line.level],
            message_of(line.message, (), scrubber), fields_of(line.fields or {}, scrubber),
        )
        for place, line in enumerate(said)
    )  # fmt: skip
