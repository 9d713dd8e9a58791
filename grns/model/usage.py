"""What an attempt has used: tokens, time and money."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Literal, TypedDict, get_args

from grns.errors import InvalidInputError

UsageKey = Literal["day", "pool", "type", "model"]
USAGE_KEYS: tuple[UsageKey, ...] = get_args(UsageKey)
_LONGEST = 128
_MOST_TOKENS, _MOST_COST, _MOST_SECONDS = 2**40, 100_000, 366 * 86_400.0


class TokenCounts(TypedDict, total=False):
    """Numbers of tokens."""

    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int


COUNTS = tuple(TokenCounts.__annotations__)


@dataclass(frozen=True, slots=True)
class Usage:
    """An item that an attempt has used. `cost` is a decimal number of US dollars; None: it is not known.

    `input_tokens` has those that were read from a cache or written to it, `output_tokens` those of reasoning.
    """

    item: str
    model: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    compute_seconds: float = 0.0
    cost: str | None = None
    is_priced: bool = False  # the cost comes from a list of prices


@dataclass(frozen=True, slots=True)
class UsageItem:
    """What an attempt of a task has used.

    Attributes:
        attempt: number of the attempt.
        item: what it was used for.
        model: the model; empty: none was named.
        input_tokens: with those that were read from a cache or written to it.
        output_tokens: with those of reasoning.
        cache_read_tokens, cache_write_tokens, reasoning_tokens: how many of them were these.
        compute_seconds: time that was used, in seconds.
        cost: US dollars.
        cost_source: `reported` by the handler, `priced` by a list of prices, or `none`: it is not known.
        at: when it was noted.
    """

    attempt: int
    item: str
    model: str
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    compute_seconds: float
    cost: float
    cost_source: str
    at: datetime


@dataclass(frozen=True, slots=True)
class UsageSum:
    """What was used together. `day`, `agent_type`, `task_type` and `model`: null unless it is summed by them.

    `unpriced_items` are those of which no cost is known: `cost`, in US dollars, lacks them.
    """

    day: date | None
    agent_type: str | None
    task_type: str | None
    model: str | None
    items: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    compute_seconds: float
    cost: float
    unpriced_items: int


def usage_of(
    item: Any, *, model: Any = None, compute_seconds: Any = 0.0, cost: Any = None, **counts: Any
) -> Usage:
    """Return what was used. Raises InvalidInputError: `bad_usage` names what is wrong."""
    for name, text in (("item", item), ("model", model or "")):
        if not isinstance(text, str) or len(text) > _LONGEST or not text.isprintable():
            raise _wrong(f"{name} is a text of up to {_LONGEST} characters in one line")
    if not item:
        raise _wrong("item is a name of what it was used for, such as `draft`")
    for name, count in counts.items():
        if name not in COUNTS:
            raise TypeError(f"usage has no {name!r}")
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= _MOST_TOKENS:
            raise _wrong(f"{name} is a number of tokens, from 0 on")
    if isinstance(compute_seconds, bool) or not isinstance(compute_seconds, int | float):
        raise _wrong("compute_seconds is a number")
    if not 0 <= compute_seconds <= _MOST_SECONDS:
        raise _wrong("compute_seconds is 0 to a year")
    return Usage(item, model or "", compute_seconds=float(compute_seconds), cost=cost_of(cost), **counts)


def cost_of(cost: Any) -> str | None:
    """Return a cost in US dollars as a decimal number. Raises InvalidInputError: `bad_usage`."""
    if cost is None:
        return None
    try:
        found = Decimal(str(cost))
    except InvalidOperation as error:
        raise _wrong("cost is a number of US dollars") from error
    if isinstance(cost, bool) or not found.is_finite() or not 0 <= found <= _MOST_COST:
        raise _wrong(f"cost is a number of US dollars, from 0 to {_MOST_COST:,}")
    return f"{found:.8f}"


def _wrong(why: str) -> InvalidInputError:
    return InvalidInputError("bad_usage", why)
