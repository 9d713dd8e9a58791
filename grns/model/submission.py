"""Submissions, which create tasks, and edits, which change tasks that are not running.

Their fields have the same names everywhere: client, SQL function, HTTP, `cmd.task.submit`.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from grns.errors import InvalidInputError
from grns.model import subjects
from grns.model.blob import BLOB, check_patch
from grns.model.envelope import Instant, MessageId, TraceId, first_problem
from grns.model.json import ANY_SIZE, Limits, dumps, merge_patch
from grns.model.labels import Description, Labels, Metadata, Tags, Title
from grns.model.secret import SECRET, check_clear, kept_secrets
from grns.model.task import Task
from grns.model.unique import Uniqueness

MAX_DELAY_SECONDS = 366 * 24 * 3600.0
MAX_ATTEMPTS_LIMIT = 1000
MOST_NEEDS = 10_000
LABELS = {"title", "description", "tags", "metadata"}
"""What an edit may change of any task."""


def _not_reserved(value: str) -> str:
    if value == subjects.RESERVED_AGENT_TYPE:
        raise ValueError(f"{value} is reserved")
    return value


Token = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
AgentType = Annotated[Token, AfterValidator(_not_reserved)]
Capabilities = Annotated[tuple[Token, ...], Field(max_length=16)]
Priority = Annotated[int, Field(ge=0, le=3, strict=True)]
MaxAttempts = Annotated[int, Field(ge=1, le=MAX_ATTEMPTS_LIMIT, strict=True)]
DelaySeconds = Annotated[float, Field(ge=0, le=MAX_DELAY_SECONDS, allow_inf_nan=False, strict=True)]
EstimatedMinutes = Annotated[float, Field(gt=0, le=MAX_DELAY_SECONDS / 60, allow_inf_nan=False, strict=True)]
IdempotencyKey = Annotated[str, Field(pattern=r"^[ -~]{1,255}$")]


def _not_too_late(value: datetime) -> datetime:
    # By this machine's clock, with a day for its error: Postgres decides.
    if value > datetime.now(UTC) + timedelta(seconds=MAX_DELAY_SECONDS, days=1):
        raise ValueError("at most 366 days from now")
    return value


RunAt = Annotated[Instant, AfterValidator(_not_too_late)]


Outcome = Literal["success", "failure", "end"]


def route_to(agent: str | None, capabilities: Collection[str] | None) -> str:
    """Return the route of a task, as `grns.route_to` does: '' is to any worker of its pool."""
    if agent is not None:
        return f"a:{agent}"
    return f"c:{','.join(sorted(set(capabilities)))}" if capabilities else ""


class Need(BaseModel):
    """A task that another one needs, and how it must end: with `success`, with `failure`, or either (`end`).

    `failure` is failed, dead or cancelled. `name` is the one by which the handler asks for the result; it
    defaults to the task's.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    task: Token
    outcome: Outcome = "success"
    name: Annotated[str, Field(pattern=r"^[ -~]{1,255}$")] | None = None


class AutomaticTask(BaseModel):
    """A task that grns submits when something has happened; what that was is added to its payload."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    task_type: Token
    payload: dict[str, Any] = Field(default_factory=dict)
    agent_type: AgentType = "worker"
    priority: Priority = 2
    max_attempts: MaxAttempts | None = None

    @field_validator("payload")
    @classmethod
    def _is_plain(cls, payload: dict[str, Any]) -> dict[str, Any]:
        """Refuse what only a task can have: nothing keeps the blob here, and nothing rotates the secret."""
        try:
            text = dumps(payload, ANY_SIZE)
        except InvalidInputError as error:
            raise ValueError(str(error)) from error
        if any(f'"{name}":' in text for name in (BLOB, SECRET)):
            raise ValueError(f"the members {BLOB} and {SECRET} cannot be here")
        return payload


class Escalation(AutomaticTask):
    """A task that is submitted when too many tasks of a workflow have failed.

    Its payload gets `workflow_id`, `workflow` (the name), `total`, `failed` and `reason`, which replace
    fields of these names.
    """

    priority: Priority = 0


FailureAction = Literal["cancel", "pause", "notify"] | Escalation


class Failures(BaseModel):
    """How many tasks of a workflow may fail, and what happens then, once.

    Args:
        count: number of failed, dead and cancelled tasks at which it happens.
        share: instead, their share of the tasks that have ended, 0 to 1, …
        of_at_least: … once so many have ended. Defaults to 1.
        then: `cancel` cancels all tasks that have not ended; `pause` queues no task that waits for others
            until you resume the workflow; `notify` only writes the event `evt.workflow.threshold`, which
            the others write, too; `grns.Escalate(...)` submits a task, such as one that calls a person; a
            list has one of the words and an escalation. Defaults to `cancel`.

    Example:
        flow = client.workflow("import", fail_after=grns.Failures(share=0.1, of_at_least=20))
        call = grns.Escalate("call_a_human", {"team": "imports"}, pool="ops")
        flow = client.workflow("import", fail_after=grns.Failures(count=3, then=["pause", call]))
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    count: Annotated[int, Field(ge=1, le=10_000, strict=True)] | None = None
    share: Annotated[float, Field(gt=0.000001, le=1, allow_inf_nan=False)] | None = None
    of_at_least: Annotated[int, Field(ge=1, le=10_000, strict=True)] = 1
    then: FailureAction | Annotated[tuple[FailureAction, ...], Field(min_length=1, max_length=2)] = "cancel"

    @model_validator(mode="after")
    def _is_one(self) -> Failures:
        if (self.count is None) == (self.share is None):
            raise ValueError("pass count or share")
        if len({type(one) is str for one in self._actions}) < len(self._actions):
            raise ValueError("then: pass cancel, pause or notify, an escalation, or one of each")
        return self

    @property
    def action(self) -> Literal["cancel", "pause", "notify"] | None:
        """What happens to the workflow; None for an escalation alone."""
        return next((one for one in self._actions if not isinstance(one, Escalation)), None)

    @property
    def escalation(self) -> Escalation | None:
        """The task that is submitted."""
        return next((one for one in self._actions if isinstance(one, Escalation)), None)

    @property
    def _actions(self) -> tuple[FailureAction, ...]:
        return self.then if isinstance(self.then, tuple) else (self.then,)


class Submission(Labels):
    """The fields of a task to create. `max_attempts` None leaves it to the handler.

    `run_at` in the past queues the task at once. A task with `needs` waits for the tasks that it needs, by
    their ids; `required` is how many of them must end as they should, and defaults to all. With `unique`
    it may be merged into a task that waits or runs. `estimated_duration_minutes` is how long an attempt is
    expected to take. Only `target_agent` may run it, or only agents that have all `required_capabilities`;
    without these, any worker of the pool. What people say of it, as its `title` and its `tags`, is in
    `grns.model.labels`.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    task_type: Token
    payload: dict[str, Any] = Field(default_factory=dict)
    agent_type: AgentType = "worker"
    priority: Priority = 2
    delay_seconds: DelaySeconds = 0.0
    run_at: RunAt | None = None
    max_attempts: MaxAttempts | None = None
    estimated_duration_minutes: EstimatedMinutes | None = None
    idempotency_key: IdempotencyKey | None = None
    trace_id: TraceId | None = None
    causation_id: MessageId | None = None
    workspace: Token = subjects.DEFAULT_WORKSPACE
    needs: Annotated[tuple[Need, ...], Field(max_length=MOST_NEEDS)] = ()
    required: Annotated[int, Field(ge=1, strict=True)] | None = None
    unique: Uniqueness | None = None
    target_agent: Token | None = None
    required_capabilities: Capabilities = ()

    @field_validator("required_capabilities")
    @classmethod
    def _one_route(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if value and info.data.get("target_agent") is not None:
            raise ValueError("pass either an agent or capabilities")
        return value

    @field_validator("required")
    @classmethod
    def _possible(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and value > len(info.data.get("needs", ())):
            raise ValueError("more than there are needs")
        return value

    @field_validator("unique")
    @classmethod
    def _has_key(cls, value: Uniqueness | None, info: ValidationInfo) -> Uniqueness | None:
        if value is not None and not value.is_in(info.data.get("payload", {})):
            raise ValueError(f"the payload has no value at {value.key}")
        return value

    @field_validator("run_at")
    @classmethod
    def _one_time(cls, value: datetime | None, info: ValidationInfo) -> datetime | None:
        if value is not None and info.data.get("delay_seconds"):
            raise ValueError("pass either a time or a delay")
        return value

    @property
    def first_delay(self) -> float:
        """How long the task waits, unless it has a `run_at`: its delay, or that of its `unique`."""
        if self.unique is None or self.run_at is not None:
            return self.delay_seconds
        return self.delay_seconds or self.unique.debounce_seconds or 0.0

    @property
    def has_key(self) -> bool:
        """Whether it may have to wait for another transaction that submits the same."""
        return self.idempotency_key is not None or self.unique is not None

    @property
    def is_refusing(self) -> bool:
        """Whether it is refused if its unique key has a task."""
        return self.unique is not None and self.unique.on_conflict == "refuse"

    @property
    def route(self) -> str:
        """Who may run it: see `route_to`."""
        return route_to(self.target_agent, self.required_capabilities)

    @property
    def is_delayed(self) -> bool:
        """Whether the task waits before it is queued, by this machine's clock."""
        if self.needs:
            return True
        return self.first_delay > 0 or (self.run_at is not None and self.run_at > datetime.now(UTC))


def submission(**fields: Any) -> Submission:
    """Return a checked submission.

    Names that the model does not have are refused: in code they are typing errors. `json.dumps` checks the
    payload when it becomes text.

    Raises:
        InvalidInputError: `bad_submission` names the wrong field.
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


class Edit(BaseModel):
    """The changes of a task; None changes nothing. A `patch` is a merge patch (RFC 7396) of the payload.

    `target_agent` and `required_capabilities` replace each other; no capabilities: any worker may run it.
    `title`, `description`, `tags` and `metadata` may change of any task, whatever its status.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    priority: Priority | None = None
    delay_seconds: DelaySeconds | None = None
    run_at: RunAt | None = None
    payload: dict[str, Any] | None = None
    patch: dict[str, Any] | None = None
    target_agent: Token | None = None
    required_capabilities: Capabilities | None = None
    title: Title | None = None
    description: Description | None = None
    tags: Tags | None = None
    metadata: Metadata | None = None

    @property
    def labels(self) -> dict[str, Any]:
        """What is to be said of the task, of all that may be: an empty value removes it."""
        return self.model_dump(include=LABELS, exclude_none=True, mode="json")

    @property
    def changes_task(self) -> bool:
        """Whether it changes more than what is said of the task."""
        return bool(self.model_dump(exclude=LABELS, exclude_none=True))

    @property
    def route(self) -> str | None:
        """Who may run it: see `route_to`; None leaves it."""
        if self.target_agent is None and self.required_capabilities is None:
            return None
        return route_to(self.target_agent, self.required_capabilities)

    def payload_of(self, task: Task, limits: Limits) -> str | None:
        """Return the new payload as text; None leaves it. A secret that is `•••`, as it was shown, stays.

        Raises InvalidInputError if it cannot be stored.
        """
        changes = self.patch if self.payload is None else self.payload
        if changes is None:
            return None
        check_clear(dumps(changes, limits))
        if self.payload is None:
            check_patch(task.payload, changes)
        wanted = changes if self.payload is not None else merge_patch(task.payload, changes)
        return dumps(kept_secrets(wanted, task.payload), limits)


def edit(**fields: Any) -> Edit:
    """Return a checked edit. Raises InvalidInputError: `bad_edit` names the wrong field."""
    try:
        checked = Edit.model_validate(fields)
    except ValidationError as error:
        raise InvalidInputError("bad_edit", first_problem(error)) from error
    if checked.payload is not None and checked.patch is not None:
        raise InvalidInputError("bad_edit", "patch: pass either a payload or a patch")
    if checked.delay_seconds is not None and checked.run_at is not None:
        raise InvalidInputError("bad_edit", "run_at: pass either a time or a delay")
    if checked.target_agent is not None and checked.required_capabilities:
        raise InvalidInputError("bad_edit", "required_capabilities: pass either an agent or capabilities")
    if checked == Edit():
        raise InvalidInputError(
            "bad_edit",
            "an edit names a priority, delay_seconds, run_at, a payload, a patch, a target_agent,"
            " required_capabilities, a title, a description, tags or metadata",
        )
    return checked


def edition(task: Task) -> str:
    """Return the entity tag of a task: it differs after each change."""
    return f"{task.version}-{task.updated_at:%Y%m%d%H%M%S%f}"
