"""Prices of models, from a list that is installed: the extra `prices`."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from grns.model.usage import Usage, cost_of


def priced(usage: Usage) -> Usage:
    """Return what was used with its cost, if the list has its model; an unknown one is never guessed."""
    if usage.cost is not None or not usage.model or (prices := _list()) is None:
        return usage
    provider, _, model = usage.model.rpartition(":")
    counted = prices.Usage(
        input_tokens=usage.input_tokens, output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens, cache_write_tokens=usage.cache_write_tokens,
    )  # fmt: skip
    try:
        found = prices.calc_price(counted, model, provider_id=provider or None)
    except (LookupError, ValueError):
        return usage
    return replace(usage, cost=cost_of(found.total_price), is_priced=True)


@cache
def _list() -> Any:
    try:
        import genai_prices
    except ModuleNotFoundError:
        return None
    return genai_prices
