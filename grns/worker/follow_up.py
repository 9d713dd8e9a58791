"""Follow-ups: tasks that grns submits when those of a handler have ended."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from pydantic import ValidationError

from grns.errors import InvalidInputError
from grns.model.envelope import first_problem
from grns.model.secret import Path
from grns.model.submission import AutomaticTask
from grns.tasks.follow_ups import MOST_OF_ONE_END, check_clear_payload, check_follow_ups

if TYPE_CHECKING:
    from grns.worker.handler import Handler


FollowUpOutcome = Literal["success", "failure"]


@dataclass(frozen=True, slots=True)
class FollowUp:
    """A task that grns submits when one of a handler has ended: `on_success=`, `on_failure=` of `@pool.task`.

    Its payload has `task_id`, `task_type` and `status` of the task that has ended. After a success it has
    `result`, too; after a failure `payload` (that of the failed task, or null if it is nested more than 32
    levels) and `error`, an object of `class` and `message`. Its trace is that of the task. A `unique=` of its
    handler does not count.

    Args:
        task: handler, or name of the task type.
        payload: JSON object of up to 16 KiB with more fields, without blobs and secrets; those above replace
            fields of their names.
        pool: pool of the task. Defaults to that of the task's own handler, or to that of the handler which
            it follows.
        priority: 0 (critical) to 3 (background). Defaults to 2.
        max_attempts: maximum number of attempts. Defaults to the handler's setting.

    Raises:
        InvalidInputError: an argument is invalid (`bad_handler`).

    Example:
        @pool.task(on_success=grns.FollowUp("embed_results", {"kind": "page"}, pool="embed"))
        async def fetch_page(page: Page) -> str: ...
    """

    task: Handler[Any, Any] | str
    payload: dict[str, Any] | None = None
    _: KW_ONLY
    pool: str | None = None
    priority: int = 2
    max_attempts: int | None = None

    def __post_init__(self) -> None:
        """Check it with the name of some pool: that of a handler may be known later."""
        if not _is_task(self.task):
            raise InvalidInputError(
                "bad_handler", f"a follow-up is a task type or a handler, not {self.task!r}"
            )
        self._said(self.pool or "worker")

    def of(self, agent_type: str) -> AutomaticTask:
        """Return what is submitted for tasks of a pool. Raises InvalidInputError."""
        own = agent_type if isinstance(self.task, str) else self.task.agent_type
        if self.pool not in (None, own) and not isinstance(self.task, str):
            raise InvalidInputError(
                "bad_handler", f"pool: the handler {self.task.task_type} is of the pool {own}"
            )
        return self._said(self.pool or own, () if isinstance(self.task, str) else self.task.secret_paths)

    def _said(self, agent_type: str, secret: Iterable[Path] = ()) -> AutomaticTask:
        try:
            said = AutomaticTask(
                task_type=self.task if isinstance(self.task, str) else self.task.task_type,
                agent_type=agent_type,
                payload={} if self.payload is None else self.payload,
                priority=self.priority,
                max_attempts=self.max_attempts,
            )
            check_follow_ups([said])
            check_clear_payload(said, secret)
        except ValidationError as error:
            raise InvalidInputError("bad_handler", f"a follow-up: {first_problem(error)}") from error
        except InvalidInputError as error:
            raise InvalidInputError("bad_handler", str(error)) from error
        return said


FollowUps: TypeAlias = "FollowUp | str | Handler[Any, Any] | Sequence[FollowUp | str | Handler[Any, Any]]"


def follow_ups(name: str, said: Any) -> tuple[FollowUp, ...]:
    """Return what `on_success=` or `on_failure=` says. Raises InvalidInputError (`bad_handler`)."""
    given = list(said) if isinstance(said, list | tuple) else [said]
    for one in given:
        if not isinstance(one, FollowUp) and not _is_task(one):
            raise InvalidInputError(
                "bad_handler",
                f"{name} takes task types, handlers or grns.FollowUp(...), one or a list, not {one!r}",
            )
    if len(given) > MOST_OF_ONE_END:
        raise InvalidInputError(
            "bad_handler", f"{name}: {MOST_OF_ONE_END} follow-ups at most, not {len(given)}"
        )
    return tuple(one if isinstance(one, FollowUp) else FollowUp(one) for one in given)


def _is_task(said: Any) -> bool:
    return isinstance(said, str) or hasattr(said, "call_signature")
