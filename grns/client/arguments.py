"""What the client's methods take: checked, and translated into the names of the wire."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pydantic import ValidationError

from grns.errors import InvalidInputError
from grns.model import subjects
from grns.model.duration import seconds_of
from grns.model.envelope import first_problem
from grns.model.json import Limits
from grns.model.secret import clear_json
from grns.model.submission import Escalation, Need, Outcome, Submission, submission
from grns.postgres.database import Database, Session
from grns.tasks.large_payload import TOO_LONG, shorten
from grns.tasks.submit import Prepared, Preparer, in_order, prepare
from grns.telemetry import current
from grns.telemetry.spans import NO_SPANS, Spans
from grns.worker.handler import Handler

if TYPE_CHECKING:
    from grns.client.handle import TaskHandle
    from grns.client.workflow import WorkflowTask

_MOST_ROWS = 1000
# Names of the wire that are others in Python.
WIRE = {
    "task_type": "task",
    "agent_type": "pool",
    "delay_seconds": "delay",
    "estimated_duration_minutes": "estimate",
    "target_agent": "agent",
    "required_capabilities": "requires",
}
_RENAMED = {"agent": "target_agent", "requires": "required_capabilities"}
_NAMES = Submission.model_fields.keys() - WIRE.keys() | set(WIRE.values())
# Options of other frameworks, and what they are called here.
_ELSEWHERE = {
    "args": 'one object as the payload: submit(task, {"…": …})',
    "kwargs": 'one object as the payload: submit(task, {"…": …})',
    "eta": "run_at=, a time with its zone",
    "countdown": "delay=, in seconds or as a timedelta",
    "queue": "pool=",
    "task_id": "idempotency_key=",
    "link": "needs=[handle] with the next task",
    "link_error": "needs=[grns.after(handle, 'failure')] with the next task",
    "expires": "nothing: compare the time in the handler",
    "max_retries": "max_attempts=, which counts the first one, too",
    "headers": "trace_id=, or fields of the payload",
}


@dataclass(frozen=True, slots=True)
class SubmissionReader:
    """Reads the arguments of `submit` for one workspace.

    What a handler submits belongs to the trace of its task, and names the message that caused the attempt.
    """

    workspace: str
    limits: Limits
    spans: Spans = NO_SPANS

    def prepare(self, fields: Mapping[str, Any]) -> Prepared:
        """Return one submission, checked."""
        return _with_secret(prepare(self._read(fields), self.limits), fields)

    async def prepare_all(self, said: Sequence[Any], database: Database | Session) -> list[Prepared]:
        """Return submissions, all checked; of payloads that are too long, fields are kept as blobs."""
        try:
            return [self.prepare(said[0])] if len(said) == 1 else self.prepare_many(said)
        except InvalidInputError as error:
            if error.code not in TOO_LONG:
                raise
        prepared = replace(self, limits=database.blob_rules.document).prepare_many(said)
        for one in prepared:
            await shorten(database, one, self.limits)
        return prepared

    def prepare_many(self, submissions: Iterable[Any]) -> list[Prepared]:
        """Return many submissions, all checked."""
        preparer = Preparer(self._read, self.limits, payload=payload_of)
        prepared = [_with_secret(preparer.prepare(one), one) for one in submissions]
        in_order(prepared)
        return prepared

    def _read(self, fields: Any) -> Submission:
        claim = current.attempt()
        if claim is None:
            return submission_of(fields, workspace=self.workspace, trace_id=self.spans.current_trace())
        return submission_of(
            fields, workspace=self.workspace, trace_id=claim.trace_id, causation_id=claim.causation_id
        )


def _with_secret(prepared: Prepared, fields: Any) -> Prepared:
    """Note what the handler of a submission declares as secret: its worker may not have started yet."""
    if type(fields) is dict and isinstance(task := fields.get("task"), Handler):
        prepared.secret = task.secret_paths
    return prepared


def submission_of(
    fields: Any, *, workspace: str, trace_id: str | None, causation_id: UUID | None = None
) -> Submission:
    """Return the checked submission of the arguments of `Client.submit`; one that is checked as it is."""
    if isinstance(fields, Submission):
        return fields
    said = dict(_fields(fields))
    for name in said.keys() - _NAMES:
        raise InvalidInputError("bad_submission", f"{ascii(name)[1:-1][:100]}: {_instead(name)}")
    said["payload"] = payload_of(said)
    task = said.pop("task", None)
    said["task_type"], said["agent_type"] = _target(task, said.pop("pool", None))
    if "needs" in said:
        said["needs"] = needs_of(said["needs"])
    if isinstance(task, Handler) and not said.get("needs"):
        said.setdefault("unique", task.unique)
    _rename(said)
    said.setdefault("workspace", workspace)
    for name, value in (("trace_id", trace_id), ("causation_id", causation_id)):
        if value is not None and said.get(name) is None:
            said[name] = value
    try:
        return submission(**said)
    except InvalidInputError as error:
        name, _, why = str(error).partition(": ")
        raise InvalidInputError(error.code, f"{WIRE.get(name, name)}: {why}") from error


def _rename(said: dict[str, Any]) -> None:
    """Give arguments the names and the units of the wire."""
    if "delay" in said:
        seconds = seconds_of(said.pop("delay"))
        said["delay_seconds"] = None if seconds is None else float(seconds)
    if "estimate" in said and (estimate := said.pop("estimate")) is not None:
        seconds = seconds_of(estimate)
        said["estimated_duration_minutes"] = estimate if seconds is None else seconds / 60
    for name in said.keys() & _RENAMED.keys():
        said[_RENAMED[name]] = said.pop(name)


def _instead(name: str) -> str:
    """Say what to pass instead of an argument that there is not."""
    if name in WIRE:
        return f"call it {WIRE[name]!r} here"
    if name in _ELSEWHERE:
        return f"pass {_ELSEWHERE[name]}"
    return 'no such option; fields of the payload go into one object: submit(task, {"…": …})'


def needs_of(needs: Any) -> tuple[Need, ...]:
    """Return checked needs. Raises InvalidInputError if they are not a list of what `after` takes."""
    if isinstance(needs, str | Need) or not isinstance(needs, Iterable):
        raise InvalidInputError("bad_submission", "needs: pass a list of handles, ids or grns.after(...)")
    return tuple(after(one) for one in needs)


def after(
    task: TaskHandle[Any] | WorkflowTask | Need | str,
    outcome: Outcome = "success",
    *,
    name: str | None = None,
) -> Need:
    """Return a need of a task, for `needs=[...]` of `Client.submit`.

    Args:
        task: handle or id of the task, or a task of a workflow.
        outcome: how it must end: `success`; `failure`, which is failed, dead or cancelled; or `end`, either.
        name: its name in `ctx.results()`. Defaults to that in the workflow, or else to the id.

    Raises:
        InvalidInputError: an argument is invalid.

    Example:
        await client.submit(refund, order, needs=[grns.after(charge, "failure")])
    """
    if isinstance(task, Need):
        return task
    task_id = task if isinstance(task, str) else getattr(task, "id", None)
    try:
        return Need(task=task_id, outcome=outcome, name=name or getattr(task, "name", None))
    except ValidationError as error:
        raise InvalidInputError(
            "bad_submission", f"needs: pass handles, ids or grns.after(...): {first_problem(error)}"
        ) from error


class Escalate(Escalation):
    """A task that is submitted when too many tasks of a workflow have failed: see `grns.Failures`.

    Its payload gets `workflow_id`, `workflow` (the name), `total`, `failed` and `reason`.

    Args:
        task: handler, or name of the task type.
        payload: JSON object, or what the handler takes; without blobs and secrets.
        pool: pool of the task; needed with a name.
        priority: 0 (critical) to 3 (background). Defaults to 0.
        max_attempts: maximum number of attempts. Defaults to the handler's setting.

    Raises:
        InvalidInputError: an argument is invalid.

    Example:
        call = grns.Escalate("call_a_human", {"team": "imports"}, pool="ops")
        flow = client.workflow("import", fail_after=grns.Failures(count=3, then=call))
    """

    def __init__(
        self,
        task: Handler[Any, Any] | str,
        payload: Any = None,
        *,
        pool: str | None = None,
        priority: int = 0,
        max_attempts: int | None = None,
    ) -> None:
        task_type, agent_type = _target(task, pool)
        said = payload_of({"task": task, "payload": payload})
        try:
            super().__init__(
                task_type=task_type, payload=said, agent_type=agent_type, priority=priority,
                max_attempts=max_attempts,
            )  # fmt: skip
        except ValidationError as error:
            raise InvalidInputError("bad_submission", first_problem(error)) from error


def known_id(task_id: str) -> str:
    """Return the id of a task; raises InvalidInputError if it cannot be one."""
    return subjects.token(task_id, name="task id")


def known_limit(limit: int) -> int:
    """Return how many rows are asked for; raises InvalidInputError if these are too many or none."""
    if type(limit) is not int or not 1 <= limit <= _MOST_ROWS:
        raise InvalidInputError("bad_limit", f"limit is 1 to {_MOST_ROWS}")
    return limit


def _fields(one: Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(one, Mapping) and all(isinstance(name, str) for name in one):
        return one
    raise InvalidInputError(
        "bad_submission", f"a submission is a mapping of its fields, not {type(one).__name__}"
    )


def payload_of(fields: Mapping[str, Any]) -> Any:
    """Return the payload of a submission as a JSON value, validated if its handler is known."""
    task, payload = fields.get("task"), fields.get("payload")
    if isinstance(task, Handler):
        return task.call_signature.payload_text(payload, task.secret_paths)
    return {} if payload is None else clear_json(payload)


def _target(task: Any, pool: Any) -> tuple[Any, Any]:
    """Return the names of the task type and of the pool."""
    if isinstance(task, Handler):
        if pool not in (None, task.agent_type):
            raise InvalidInputError(
                "bad_submission", f"pool: the handler {task.task_type} is of the pool {task.agent_type}"
            )
        return task.task_type, task.agent_type
    if not isinstance(task, str) and callable(task):
        name = getattr(task, "__name__", "it")
        raise InvalidInputError(
            "bad_submission", f"task: {name} is not a handler: decorate it with @pool.task"
        )
    if isinstance(task, str) and "." in task:
        raise InvalidInputError(
            "bad_submission",
            f"task: names have no dots: write {task.rpartition('.')[2]!r}, not {task[:100]!r}",
        )
    if pool is None and isinstance(task, str):
        raise InvalidInputError(
            "bad_submission",
            f"pool: say which pool runs {task[:64]!r}, such as pool='worker', or pass the handler itself",
        )
    return task, pool


def checked_timeout(timeout: float | timedelta | None) -> float | None:
    """Return a timeout in seconds; raises InvalidInputError if it is neither a number nor a duration."""
    if timeout is None or (seconds := seconds_of(timeout)) is not None:
        return None if timeout is None else seconds
    raise InvalidInputError("bad_timeout", "timeout is a number of seconds, a timedelta, or None")


def short(reason: str | None) -> str | None:
    """Return a reason as it is stored: at most 1,000 characters."""
    if reason is None:
        return None
    if not isinstance(reason, str):
        raise InvalidInputError("bad_reason", f"a reason is text, not {type(reason).__name__}")
    return reason[:1000].encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")[:1000]
