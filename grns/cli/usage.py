"""`grns task usage`."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

import click

from grns.cli import option
from grns.cli.group import Command
from grns.cli.output import Column, Output, output_option
from grns.cli.session import CliSession, with_session
from grns.errors import InvalidInputError
from grns.model.usage import USAGE_KEYS, UsageItem, UsageSum


def dollars(one: UsageItem | UsageSum) -> str:
    """Return a cost; `?` of what has none that is known."""
    is_unknown = one.cost_source == "none" if isinstance(one, UsageItem) else one.unpriced_items == one.items
    return "?" if is_unknown else f"${one.cost:,.4f}"


_TOKENS = (
    Column("INPUT", "input_tokens"),
    Column("OUTPUT", "output_tokens"),
    Column("CACHED", "cache_read_tokens", spare=2),
    Column("REASONING", "reasoning_tokens", spare=3),
    Column("SECONDS", lambda one: f"{one.compute_seconds:g}" if one.compute_seconds else "", spare=1),
    Column("COST", dollars),
)
_ITEMS = (
    Column("ATTEMPT", "attempt"),
    Column("ITEM", "item", may_shrink=True),
    Column("MODEL", "model", may_shrink=True),
    *_TOKENS,
    Column("SOURCE", "cost_source", spare=4),
)
_KEYS = {
    "day": Column("DAY", lambda one: one.day.isoformat()),
    "pool": Column("POOL", "agent_type"),
    "type": Column("TYPE", "task_type"),
    "model": Column("MODEL", lambda one: one.model or "-", may_shrink=True),
}


def _keys(said: str) -> list[str]:
    names = [name for name in said.split(",") if name]
    if wrong := set(names) - set(USAGE_KEYS):
        raise InvalidInputError("bad_usage", f"{min(wrong)!r} is none of {', '.join(USAGE_KEYS)}")
    return names


_NOTHING = "no usage was reported"
_DAY = click.DateTime(["%Y-%m-%d"])


@click.command(
    cls=Command,
    examples=["grns task usage TASK_ID", "grns task usage --by pool,model --since 2026-11-01"],
)
@click.argument("task_id", metavar="[TASK_ID]", required=False)
@click.option(
    "--by", type=option.Checked(_keys, name="keys"), default="day,model", show_default=True,
    metavar="KEYS", help="By what to sum: some of day, pool, type and model.",
)  # fmt: skip
@click.option("--since", type=_DAY, metavar="DAY", help="The first day, in UTC. Defaults to 30 days ago.")
@click.option("--until", type=_DAY, metavar="DAY", help="The last day. Defaults to today.")
@output_option
@with_session("read", missing="grns task list")
async def usage(
    session: CliSession,
    out: Output,
    task_id: str | None,
    by: list[Any],
    since: datetime | None,
    until: datetime | None,
) -> None:
    """Show what the attempts of a task have used: tokens, time and money.

    Without TASK_ID, show the sums of all tasks by day, pool, task type or model.
    """
    if task_id is not None:
        await session.client.get(task_id)
        out.rows(await session.client.usage.of(task_id), _ITEMS, nothing=_NOTHING)
        return
    rows = await session.client.usage.sum(by=by, since=_day(since), until=_day(until))
    columns = (*(_KEYS[name] for name in by), Column("ITEMS", "items"), *_TOKENS)
    out.rows(rows, columns, nothing=_NOTHING)


def _day(at: datetime | None) -> date | None:
    return None if at is None else at.date()
