"""Steps of HTTP workers: recorded values, signals, and waits."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field
from starlette.responses import Response

from grns.api.access import Agent, RequestContext
from grns.api.answer import Answer
from grns.api.queue import FinishResponse, Seconds, TokenRequest, verified
from grns.api.request import Body, around, strict_body
from grns.api.route import router
from grns.errors import ConflictError, InvalidInputError, PermissionDeniedError
from grns.model.form import form_of
from grns.model.json import dumps, loads_stored
from grns.model.outcome import Suspension
from grns.model.question import APPROVAL, question, question_id
from grns.model.secret import check_clear, has_secrets
from grns.model.vault import Vault
from grns.worker.step import EventWait, RecordedStep

routes = router("queue")

StepName = Annotated[str, Field(min_length=1, max_length=300, pattern=r"^[^\x00-\x1f\x7f]+$")]
EventKind = Annotated[str, Field(pattern=r"^evt(\.[A-Za-z0-9_-]{1,64}){2,4}$")]
SignalName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]


class StepRequest(TokenRequest):
    """Record the value of a step."""

    name: StepName
    value: Any = None


class EventRequest(Body):
    """An event that a task waits for: its kind, what its payload contains, and behind which number it is."""

    kind: EventKind
    where: dict[str, Any] = Field(default_factory=dict)
    behind: Annotated[int, Field(ge=0, lt=2**63, strict=True)] = 0


class TakeRequest(TokenRequest):
    """Take the oldest signal of a name for a step, an event, or the answer to the question of the step.

    Events need the scope `read`, too. With the `digest` of the question, an answer to something else is not
    taken.
    """

    step: StepName
    event: EventRequest | None = None
    signal: SignalName | None = None
    digest: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None


class QuestionRequest(Body):
    """A question to people. `form` is the JSON Schema of a flat object; an approval has none."""

    kind: Literal["question", "approval"] = "question"
    title: Annotated[str, Field(min_length=1, max_length=255)]
    body: str | None = None
    evidence: Any = None
    form: dict[str, Any] | None = None
    to: Annotated[list[str], Field(max_length=20)] = Field(default_factory=list)


class SuspendRequest(TokenRequest):
    """Let the task wait for `seconds`; or at most so long for a signal, an answer, or the step's event."""

    step: StepName
    seconds: Seconds | None = None
    signal: SignalName | None = None
    event: Annotated[bool, Field(strict=True)] = False
    question: QuestionRequest | None = None


class WorkerStep(BaseModel):
    """A recorded step. `seconds` is how long a sleep has yet to last."""

    name: str
    kind: str
    value: Any
    seconds: float | None


class StepsResponse(BaseModel):
    """The steps that attempts of the task have recorded."""

    items: list[WorkerStep]


class ValueResponse(BaseModel):
    """The value that is kept, which is the first one; of a signal, null while there is none."""

    value: Any


@routes.post("/queue/steps", response_model=StepsResponse)
async def list_claim_steps(
    request_context: Agent, body: Annotated[TokenRequest, strict_body(TokenRequest, code="bad_step")]
) -> Response:
    """Return the steps that earlier attempts of a claimed task have recorded."""
    token = await verified(request_context, body)
    steps = await request_context.context.agent_steps.read(request_context.writing_attempt, token)
    vault = request_context.context.database.vault
    items = [
        {
            "name": one.name,
            "kind": one.kind,
            "value": _opened(vault, one, request_context.workspace),
            "seconds": one.seconds,
        }
        for one in steps
    ]
    return Answer({"items": items})


def _opened(vault: Vault, step: RecordedStep, workspace: str) -> Any:
    """Return the value of a step. That of a signal is never opened: any key may have sent it."""
    value = loads_stored(step.value)
    return vault.open(value, workspace) if step.kind == "step" else value


@routes.post("/queue/step", response_model=ValueResponse)
async def record_claim_step(
    request_context: Agent,
    body: Annotated[
        StepRequest, strict_body(StepRequest, lambda context: around(context.result_limits), code="bad_step")
    ],
) -> Response:
    """Record the value of a step, which later attempts get. Repeating the request gives the same answer."""
    token = await verified(request_context, body)
    text = dumps(body.value, request_context.context.result_limits)
    check_clear(text)
    kept = await request_context.context.agent_steps.record(
        request_context.writing_attempt, token, body.name, text
    )
    if kept != text and has_secrets(loads_stored(kept)):
        raise ConflictError("the step is recorded, with a secret: list the steps of the task to read it")
    return Answer({"value": loads_stored(kept)})


@routes.post("/queue/signal", response_model=ValueResponse)
async def take_claim_signal(
    request_context: Agent, body: Annotated[TakeRequest, strict_body(TakeRequest, code="bad_step")]
) -> Response:
    """Take a signal, or an answer: `{"value": …}`, `{"timed_out": true}`, or null while there is none."""
    token = await verified(request_context, body)
    wait, name = None, body.signal or f"question {question_id(token.task_id, body.step)}"
    if body.event is not None:
        if not request_context.principal.may("read", request_context.workspace):
            raise PermissionDeniedError("the scope read is needed to wait for events")
        where = dumps(body.event.where, request_context.context.payload_limits)
        wait, name = EventWait(body.event.kind, where, body.event.behind), f"event {body.step}"
    found = await request_context.context.agent_steps.take_signal(
        request_context.writing_attempt, token, body.step, name, digest=body.digest, event=wait
    )
    return Answer({"value": None if found is None else loads_stored(found)})


@routes.post("/queue/suspend", response_model=FinishResponse)
async def suspend_claim(
    request_context: Agent,
    body: Annotated[
        SuspendRequest,
        strict_body(SuspendRequest, lambda context: around(context.payload_limits), code="bad_step"),
    ],
) -> Response:
    """End the attempt, which does not count, and let the task wait; then it is claimed again."""
    token = await verified(request_context, body)
    status = await request_context.context.agent_steps.suspend(
        request_context.writing_attempt, token, _suspension(request_context, token.task_id, body)
    )
    return Answer({"status": status})


def _suspension(request_context: RequestContext, task_id: str, said: SuspendRequest) -> Suspension:
    if said.event:
        return Suspension(said.step, seconds=said.seconds, signal=f"event {said.step}")
    if said.question is None and said.signal is None and said.seconds is None:
        raise InvalidInputError("bad_step", "wait for seconds, for a signal, or for the answer to a question")
    if said.question is None:
        return Suspension(said.step, seconds=said.seconds, signal=said.signal)
    if said.signal is not None:
        raise InvalidInputError("bad_step", "wait for a signal or for an answer, not for both")
    asked = said.question
    if (asked.form is None) != (asked.kind == "approval"):
        raise InvalidInputError("bad_step", "form: pass it with a question, and not with an approval")
    checked = question(
        kind=asked.kind, title=asked.title, body=asked.body, evidence=asked.evidence,
        form=APPROVAL if asked.form is None else form_of(asked.form), to=asked.to,
    )  # fmt: skip
    id_ = question_id(task_id, said.step)
    return Suspension(said.step, seconds=said.seconds, signal=f"question {id_}", question=checked.text(id_))
