"""A submission: what somebody hands in to have a task created and run.

The same names everywhere: client, SQL function, HTTP, `cmd.task.submit`.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from grns.errors import InvalidInputError
from grns.model import subjects
from grns.model.envelope import MessageId, TraceId, first_problem

MAX_DELAY_SECONDS = 366 * 24 * 3600.0
MAX_ATTEMPTS_LIMIT = 1000


def _not_reserved(value: str) -> str:
    if value == subjects.RESERVED_AGENT_TYPE:
        raise ValueError(f"{value} is reserved")
    return value


Token = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
AgentType = Annotated[Token, AfterValidator(_not_reserved)]
Priority = Annotated[int, Field(ge=0, le=3, strict=True)]
MaxAttempts = Annotated[int, Field(ge=1, le=MAX_ATTEMPTS_LIMIT, strict=True)]
DelaySeconds = Annotated[float, Field(ge=0, le=MAX_DELAY_SECONDS, allow_inf_nan=False, strict=True)]
IdempotencyKey = Annotated[str, Field(pattern=r"^[ -~]{1,255}$")]


class Submission(BaseModel):
    """The fields of a task to create. `max_attempts` None leaves it to the handler."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    task_type: Token
    payload: dict[str, Any] = Field(default_factory=dict)
    agent_type: AgentType = "worker"
    priority: Priority = 2
    delay_seconds: DelaySeconds = 0.0
    max_attempts: MaxAttempts | None = None
    idempotency_key: IdempotencyKey | None = None
    trace_id: TraceId | None = None
    causation_id: MessageId | None = None
    workspace: Token = subjects.DEFAULT_WORKSPACE


def submission(**fields: Any) -> Submission:
    """Return a checked submission; `InvalidInputError('bad_submission')` names the field that is wrong.

    Names that the model does not have are refused here: from code they are typing errors.
    The payload is checked where it is turned into text, by `strict_json.dumps`.
    """
    unknown = sorted(fields.keys() - Submission.model_fields.keys())
    if unknown:
        raise InvalidInputError(
            "bad_submission", f"{ascii(unknown[0])[1:-1][:100]}: a submission has no such field"
        )
    try:
        return Submission.model_validate(fields)
    except ValidationError as error:
        raise InvalidInputError("bad_submission", first_problem(error)) from error
