"""Budgets: what a user says, and what Postgres has."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from grns.errors import InvalidInputError
from grns.model.envelope import first_problem
from grns.model.submission import AgentType

MOST_COST, MOST_TOKENS = 10_000_000.0, 2**50
Period = Literal["day", "month"]
BudgetAction = Literal["warn", "refuse", "ask"]
Dollars = Annotated[float, Field(ge=0.01, le=MOST_COST, allow_inf_nan=False, strict=True)]
Tokens = Annotated[int, Field(ge=1, le=MOST_TOKENS, strict=True)]


class BudgetSpec(BaseModel):
    """What tasks of a pool, or of a whole workspace, may use in a day or month (UTC), and what happens then.

    Once it is used up, `warn` tells, `refuse` refuses submissions, and `ask` pauses the pools that have used
    of it until more is allowed. Tokens are those of input and output together.

    Example:
        {"agent_type": "writers", "period": "month", "max_cost": 200, "action": "ask"}
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    agent_type: AgentType | None = None
    period: Period = "month"
    max_cost: Dollars | None = None
    max_tokens: Tokens | None = None
    action: BudgetAction = "warn"

    @model_validator(mode="after")
    def _has_an_amount(self) -> BudgetSpec:
        if self.max_cost is None and self.max_tokens is None:
            raise ValueError("pass a cost, a number of tokens, or both")
        return self


class Allowance(BaseModel):
    """How much more may be used in the present period."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cost: Dollars | None = None
    tokens: Tokens | None = None

    @model_validator(mode="after")
    def _has_an_amount(self) -> Allowance:
        if self.cost is None and self.tokens is None:
            raise ValueError("pass a cost, a number of tokens, or both")
        return self


@dataclass(frozen=True, slots=True)
class Budget:
    """A budget, and what was used of it in the present period.

    `agent_type` is its pool; null: all of the workspace. `extra_cost` and `extra_tokens` are what was
    allowed beyond it until the period ends. It is used up since `exceeded_since`. The scheduler looks
    every two seconds; it did last at `looked_at`. Of `used_share` 1 is all. Costs are US dollars.
    """

    workspace: str
    name: str
    agent_type: str | None
    period: str
    max_cost: float | None
    max_tokens: int | None
    action: str
    begins_on: date
    used_cost: float
    used_tokens: int
    extra_cost: float
    extra_tokens: int
    exceeded_since: datetime | None
    looked_at: datetime | None
    updated_at: datetime
    updated_by: str
    used_share: float


def budget_spec(**fields: Any) -> BudgetSpec:
    """Return a checked budget. Raises InvalidInputError: `bad_budget` names the wrong field."""
    try:
        return BudgetSpec.model_validate(fields)
    except ValidationError as error:
        raise _wrong(error) from error


def allowance(**fields: Any) -> Allowance:
    """Return checked amounts. Raises InvalidInputError: `bad_budget` names the wrong one."""
    try:
        return Allowance.model_validate(fields)
    except ValidationError as error:
        raise _wrong(error) from error


def _wrong(error: ValidationError) -> InvalidInputError:
    return InvalidInputError("bad_budget", first_problem(error).removeprefix("document: "))
