"""Limits: what a user says, and what Postgres has."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from grns.errors import InvalidInputError
from grns.model import duration
from grns.model.envelope import first_problem
from grns.model.submission import AgentType, Token

_YEAR_SECONDS = 366 * 86_400.0


class LimitSpec(BaseModel):
    """A limit to create or to replace, and which tasks of one pool fall under it.

    With a `key`, the place of a value in the payload (`tenant_id`, `customer.id`), each value has a limit of
    its own; a task without it has the key `""`. `max_tasks` is how many tasks of a key may be queued or
    running at once. `rate` (`500/1m`) is how many may begin in a time, `burst` how many of these at once; it
    defaults to those of one second, and to one at least.

    Example:
        {"name": "tenant", "agent_type": "shop", "task_types": ["import_file"],
         "key": "tenant_id", "max_tasks": 5}
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Token
    agent_type: AgentType
    task_types: Annotated[list[Token], Field(min_length=1, max_length=10_000)] | None = None
    key: Annotated[str, Field(pattern=r"^[^.\x00]{1,64}(\.[^.\x00]{1,64}){0,7}$")] | None = None
    max_tasks: Annotated[int, Field(ge=1, le=1_000_000, strict=True)] | None = None
    rate: Annotated[str, Field(max_length=40)] | None = None
    burst: Annotated[int, Field(ge=1, le=10_000, strict=True)] | None = None

    @field_validator("rate")
    @classmethod
    def _is_rate(cls, rate: str | None) -> str | None:
        if rate is not None:
            _parsed_rate(rate)
        return rate

    @model_validator(mode="after")
    def _limits_something(self) -> LimitSpec:
        if self.max_tasks is None and self.rate is None:
            raise ValueError("pass a maximum, a rate, or both")
        if self.burst is not None and self.rate is None:
            raise ValueError("burst goes with a rate")
        return self

    @property
    def key_path(self) -> list[str] | None:
        """The members of the payload that lead to the key."""
        return None if self.key is None else self.key.split(".")

    @property
    def rate_count(self) -> int | None:
        """How many tasks may begin in `rate_seconds`."""
        return None if self.rate is None else _parsed_rate(self.rate)[0]

    @property
    def rate_seconds(self) -> float | None:
        """In how many seconds `rate_count` tasks may begin."""
        return None if self.rate is None else _parsed_rate(self.rate)[1]

    @property
    def settled_burst(self) -> int | None:
        """How many tasks may begin at once."""
        if self.rate is None:
            return None
        count, seconds = _parsed_rate(self.rate)
        return self.burst or min(10_000, max(1, math.ceil(count / seconds)))


def limit_spec(**fields: Any) -> LimitSpec:
    """Return a checked limit. Raises InvalidInputError: `bad_limit` names the wrong field."""
    try:
        return LimitSpec.model_validate(fields)
    except ValidationError as error:
        raise InvalidInputError("bad_limit", first_problem(error).removeprefix("document: ")) from error


def _parsed_rate(rate: str) -> tuple[int, float]:
    count, _, time = rate.partition("/")
    seconds = duration.parse(time if time[:1].isdigit() else f"1{time}") if time else None
    if not (count.isdecimal() and count.isascii() and 1 <= int(count) <= 1_000_000):
        raise ValueError("a rate is a number of tasks and a time, such as 500/1m")
    if seconds is None or not 0.001 <= seconds <= _YEAR_SECONDS:
        raise ValueError("a rate is a number of tasks and a time of 1ms to 366d, such as 500/1m")
    return int(count), seconds


@dataclass(frozen=True, slots=True)
class LimitedPool:
    """Which tasks of a pool fall under a limit: all without `task_types`. Without a `key`, they share one."""

    agent_type: str
    task_types: list[str] | None
    key: str | None


@dataclass(frozen=True, slots=True)
class TaskLimit:
    """A limit as Postgres has it. None of its tasks is queued while it has a `paused_at`."""

    workspace: str
    name: str
    max_tasks: int | None
    rate_count: int | None
    rate_seconds: float | None
    burst: int | None
    pools: list[LimitedPool]
    paused_at: datetime | None
    paused_by: str | None
    pause_reason: str | None
    created_at: datetime
    updated_at: datetime
    updated_by: str
    version: int

    @property
    def rate(self) -> str | None:
        """The rate as a user says it: `500/1m`."""
        if self.rate_count is None or self.rate_seconds is None:
            return None
        whole = self.rate_seconds.is_integer()
        time = duration.written(int(self.rate_seconds)) if whole else f"{self.rate_seconds!r}s"
        return f"{self.rate_count}/{time}"


@dataclass(frozen=True, slots=True)
class LimitKey:
    """Tasks of one key of a limit, by what they do. The key of a limit without keys is `""`.

    `max_tasks` and `weight` are those of a key that has numbers of its own.
    """

    key: str
    waiting: int
    queued: int
    running: int
    waiting_since: datetime | None
    max_tasks: int | None = None
    weight: float | None = None
