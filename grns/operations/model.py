"""Bulk operations: changes to every task that matches a filter.

The same names everywhere: command line, HTTP, table.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from grns.errors import InvalidInputError
from grns.model import filter as filters
from grns.model.envelope import first_problem
from grns.model.filter import Filter, Number, Term
from grns.model.json import dumps
from grns.model.submission import AgentType
from grns.model.task import REDRIVABLE, TERMINAL, TaskStatus

_MOST_PER_MINUTE = 1_000_000.0
_LEAST_PER_MINUTE = 1 / 1440


class Action(StrEnum):
    """What is done to each task."""

    REDRIVE = "redrive"
    DISCARD = "discard"
    CANCEL = "cancel"


class State(StrEnum):
    """Where an operation can be."""

    PENDING = "pending"
    CANARY = "canary"
    RUNNING = "running"
    PAUSED = "paused"
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"


ENDED = frozenset({State.DONE, State.CANCELLED, State.FAILED})

# Where a task can be for something to be done to it …
OBJECTS: dict[Action, frozenset[TaskStatus]] = {
    Action.REDRIVE: REDRIVABLE,
    Action.DISCARD: REDRIVABLE,
    Action.CANCEL: frozenset(TaskStatus) - TERMINAL,
}
# … and which of these are meant by a filter that says nothing of it.
_MEANT: dict[Action, tuple[TaskStatus, ...]] = {
    Action.REDRIVE: (TaskStatus.DEAD, TaskStatus.FAILED),
    Action.DISCARD: (TaskStatus.DEAD, TaskStatus.FAILED),
    Action.CANCEL: (TaskStatus.WAITING, TaskStatus.QUEUED, TaskStatus.RETRY_WAIT, TaskStatus.RUNNING),
}


def _at_least_one_a_day(value: object) -> object:
    if isinstance(value, float | int) and 0 < value < _LEAST_PER_MINUTE:
        raise ValueError("pass at least 0.0007, one task a day")
    return value


class OperationRequest(BaseModel):
    """The fields of an operation. `filter` is canonical, and finds only tasks to which it can be done.

    It is required: an operation on all tasks has an empty one.

    `canary`, `patch` (a merge patch of each payload) and `agent_type` (who is to run them instead) go with
    a redrive. Without a rate it goes as fast as it can.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    action: Action
    filter: str
    canary: Annotated[bool, Field(strict=True)] = False
    rate_per_minute: (
        Annotated[
            float,
            Field(ge=_LEAST_PER_MINUTE, le=_MOST_PER_MINUTE, allow_inf_nan=False, strict=True),
            BeforeValidator(_at_least_one_a_day),
        ]
        | None
    ) = None
    patch: dict[str, Any] | None = None
    agent_type: AgentType | None = None
    reason: Annotated[str, Field(pattern=r"^[^\x00]{1,1000}$")] | None = None


def request(**fields: Any) -> OperationRequest:
    """Return a checked request; `InvalidInputError` is `bad_operation`, `bad_filter`, or what a patch
    breaks."""
    try:
        wanted = OperationRequest.model_validate(fields)
    except ValidationError as error:
        raise InvalidInputError("bad_operation", first_problem(error)) from error
    if wanted.action is not Action.REDRIVE:
        for name in ("canary", "patch", "agent_type"):
            if getattr(wanted, name) not in (None, False):
                raise InvalidInputError("bad_operation", f"{name}: it goes with a redrive")
    if wanted.patch is not None:
        dumps(wanted.patch)
    return wanted.model_copy(update={"filter": str(_settled(wanted.action, wanted.filter))})


def _settled(action: Action, text: str) -> Filter:
    """Return a filter that says which states it means; `InvalidInputError` where the action can do nothing
    in one."""
    wanted = filters.parse(text)
    if not any(term.name == "status" and not term.is_negated for term in wanted.terms):
        wanted = filters.parse(f"status:{','.join(_MEANT[action])} {wanted}")
    if others := wanted.states - OBJECTS[action]:
        able = ", ".join(sorted(OBJECTS[action]))
        raise InvalidInputError(
            "bad_filter", f"it finds {min(others)} tasks, and one can {action} only {able} ones"
        )
    return wanted


def since(wanted: Filter, seconds: float) -> Filter:
    """Return the filter that finds now what this one found so long ago: its ages are of that moment."""
    return Filter(tuple(_aged(term, round(seconds)) if term.name == "age" else term for term in wanted.terms))


def _aged(term: Term, seconds: int) -> Term:
    numbers = (one for one in term.values if isinstance(one, Number))
    return replace(term, values=tuple(replace(one, number=one.number + seconds) for one in numbers))


def batch_size(rate_per_minute: float | None, most: int) -> int:
    """Return how many tasks go into one batch: those of a second, or the most where there is no rate."""
    return most if rate_per_minute is None else max(1, min(most, round(rate_per_minute / 60)))
