"""Unique tasks: which submissions are merged into a task that exists."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from grns.errors import InvalidInputError
from grns.model.duration import seconds_of
from grns.model.envelope import first_problem

_YEAR_SECONDS = 366 * 86_400.0
_DEFAULT_MAX_FACTOR = 10.0  # of the debounce

Seconds = Annotated[float, Field(ge=0.001, le=_YEAR_SECONDS, allow_inf_nan=False, strict=True)]


class Uniqueness(BaseModel):
    """When a submission is merged into the latest task of its pool, task type and key.

    `key` is the place of a value in the payload (`doc_id`, `customer.id`); without it, all tasks of the type
    share one key. The task is merged into while it waits to begin (`during` is `waiting`: it is waiting,
    queued or in retry_wait), until it ends (`unfinished`), or for so many seconds after its creation.
    `on_conflict` says what a merged submission does: nothing (`existing`), an error (`refuse`), or it gives
    its payload to the task (`replace`, with `waiting` only). With `debounce_seconds`, a task begins so long
    after the latest submission, and `debounce_max_seconds` after its creation at the latest: ten times as
    long by default.

    Example:
        {"key": "doc_id", "during": "waiting", "on_conflict": "replace", "debounce_seconds": 5}
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: Annotated[str, Field(pattern=r"^[^.\x00]{1,64}(\.[^.\x00]{1,64}){0,7}$")] | None = None
    during: Literal["waiting", "unfinished"] | Seconds = "waiting"
    on_conflict: Literal["existing", "refuse", "replace"] = "existing"
    debounce_seconds: Seconds | None = None
    debounce_max_seconds: Seconds | None = None

    @model_validator(mode="after")
    def _fits(self) -> Uniqueness:
        if self.on_conflict == "replace" and self.during != "waiting":
            raise ValueError("on_conflict: only the payload of a task that waits to begin can be replaced")
        if self.debounce_seconds is not None and self.on_conflict != "replace":
            raise ValueError('debounce: the latest payload counts, so pass on_conflict="replace" with it')
        if self.debounce_max_seconds is not None and (
            self.debounce_seconds is None or self.debounce_max_seconds < self.debounce_seconds
        ):
            raise ValueError("debounce_max: it goes with a debounce, which is not longer")
        return self

    def is_in(self, payload: Mapping[str, Any]) -> bool:
        """Whether a payload has a value at the place of the key."""
        value: Any = payload
        for name in self.key.split(".") if self.key else ():
            value = value.get(name) if isinstance(value, Mapping) else None
        return value is not None

    def text(self) -> str:
        """Return what `grns.submit_tasks` reads."""
        most = self.debounce_max_seconds
        if most is None and self.debounce_seconds is not None:
            most = min(_YEAR_SECONDS, self.debounce_seconds * _DEFAULT_MAX_FACTOR)
        return self.model_copy(update={"debounce_max_seconds": most}).model_dump_json(exclude_none=True)


class Unique(Uniqueness):
    """Merge a submission into the latest task of its task type and key, if that still waits to begin.

    Pass it to `@pool.task(unique=...)` or to `Client.submit`. Tasks of workflows, and those that need others,
    are never merged.

    Args:
        key: place of a value in the payload, such as `doc_id` or `customer.id`. Defaults to none: all tasks
            of the type share one key.
        during: how long a task is merged into: `waiting`, until it begins to run; `unfinished`, until it
            ends; or a time from its creation on, in seconds or as a `timedelta`. Defaults to `waiting`.
        on_conflict: `existing` returns the task; `refuse` raises a ConflictError; `replace` gives the payload
            to the task and returns it, with `waiting` only. Defaults to `existing`.
        debounce: how long after the latest submission the task begins, in seconds or as a `timedelta`; with
            `replace` only.
        debounce_max: how long after its creation it begins at the latest. Defaults to ten times `debounce`.

    Raises:
        InvalidInputError: an argument is invalid.

    Example:
        @pool.task(unique=grns.Unique("doc_id", on_conflict="replace", debounce=5))
        async def index(document: Document) -> None: ...
    """

    def __init__(
        self,
        key: str | None = None,
        *,
        during: Literal["waiting", "unfinished"] | float | timedelta = "waiting",
        on_conflict: Literal["existing", "refuse", "replace"] = "existing",
        debounce: float | timedelta | None = None,
        debounce_max: float | timedelta | None = None,
    ) -> None:
        try:
            super().__init__(
                key=key,
                during=during if isinstance(during, str) else _seconds(during),
                on_conflict=on_conflict,
                debounce_seconds=_seconds(debounce),
                debounce_max_seconds=_seconds(debounce_max),
            )
        except ValidationError as error:
            why = first_problem(error).removeprefix("document: ")
            raise InvalidInputError("bad_submission", f"unique: {why}") from error


def _seconds(value: Any) -> Any:
    """Return a duration in seconds; what is none as it is, so that the model refuses it."""
    seconds = seconds_of(value) if isinstance(value, int | float | timedelta) else None
    return value if seconds is None else float(seconds)
