"""`grns pool budget …`."""

from __future__ import annotations

from collections.abc import Sequence

import click

from grns.cli import failure, option
from grns.cli.group import Group
from grns.cli.output import Cell, Column, Output, output_option
from grns.cli.session import CliSession, with_session
from grns.model.budget import Budget, BudgetAction, Period

_LIST = "grns pool budget list"
_NAME = click.argument("name", metavar="NAME", type=option.Token("name"))
_COST = click.option("--cost", type=click.FloatRange(0.01), metavar="DOLLARS", help="US dollars.")
_TOKENS = click.option("--tokens", type=click.IntRange(1), help="Tokens of input and output.")


def _share(budget: Budget) -> str:
    return f"{budget.used_share:.0%}"


def _cost(budget: Budget) -> str:
    return _of(budget.used_cost, budget.max_cost, budget.extra_cost, "${:,.2f}")


def _tokens(budget: Budget) -> str:
    return _of(budget.used_tokens, budget.max_tokens, budget.extra_tokens, "{:,}")


def _of(used: float, most: float | None, extra: float, form: str) -> str:
    shown = form.format(used)
    return shown if most is None else f"{shown} of {form.format(most + extra)}"


def _state(budget: Budget) -> str:
    return "within" if budget.exceeded_since is None else "used up"


_COLUMNS = (
    Column("NAME", "name"),
    Column("POOL", lambda budget: budget.agent_type or "(all)"),
    Column("PERIOD", "period"),
    Column("USED", _share),
    Column("COST", _cost),
    Column("TOKENS", _tokens, spare=1),
    Column("ACTION", "action"),
    Column("STATE", _state, is_status=True),
)
_FIELDS: Sequence[tuple[str, Cell]] = (
    ("name", "name"),
    ("pool", lambda budget: budget.agent_type or "(all)"),
    ("period", lambda budget: f"{budget.period}, since {budget.begins_on.isoformat()}"),
    ("used", _share),
    ("cost", _cost),
    ("tokens", _tokens),
    ("action", "action"),
    ("state", _state),
    ("used up", "exceeded_since"),
    ("looked at", "looked_at"),
    ("changed by", "updated_by"),
    ("changed at", "updated_at"),
)


@click.group(cls=Group)
def budget() -> None:
    """Set what tasks may use in a day or a month."""


@budget.command(
    examples=[
        "grns pool budget put writing --pool writers --cost 200 --action ask",
        "grns pool budget put tokens --period day --tokens 5000000 --action refuse",
    ]
)
@_NAME
@click.option("--pool", metavar="POOL", type=option.Token("pool"), help="Pool. Defaults to all pools.")
@click.option(
    "--period",
    type=click.Choice(["day", "month"]),
    default="month",
    show_default=True,
    help="How long (UTC).",
)
@_COST
@_TOKENS
@click.option(
    "--action", type=click.Choice(["warn", "refuse", "ask"]), default="warn", show_default=True,
    help="Once it is used up: tell, refuse submissions, or pause until you allow more.",
)  # fmt: skip
@output_option
@with_session("write")
async def put(
    session: CliSession,
    out: Output,
    name: str,
    pool: str | None,
    period: Period,
    cost: float | None,
    tokens: int | None,
    action: BudgetAction,
) -> None:
    """Create the budget NAME, or replace it."""
    found = await session.client.budgets.put(
        name, pool=pool, period=period, max_cost=cost, max_tokens=tokens, action=action
    )
    out.details(found, _FIELDS)


@budget.command("list", examples=["grns pool budget list", "grns pool budget list -o json"])
@output_option
@with_session("read")
async def list_budgets(session: CliSession, out: Output) -> None:
    """List budgets, and what was used of them."""
    out.rows(await session.client.budgets.list(), _COLUMNS, nothing="no budgets")


@budget.command(examples=["grns pool budget show writing", "grns pool budget show writing -o json"])
@_NAME
@output_option
@with_session("read", missing=_LIST)
async def show(session: CliSession, out: Output, name: str) -> None:
    """Show a budget."""
    out.details(await session.client.budgets.get(name), _FIELDS)


@budget.command(
    examples=["grns pool budget allow writing --cost 50", "grns pool budget allow tokens --tokens 1000000"]
)
@_NAME
@_COST
@_TOKENS
@output_option
@with_session("write", missing=_LIST)
async def allow(session: CliSession, out: Output, name: str, cost: float | None, tokens: int | None) -> None:
    """Allow more of a budget until its period ends. Pools that it has paused resume, if that is enough."""
    out.details(await session.client.budgets.allow(name, cost=cost, tokens=tokens), _FIELDS)
    failure.note("the scheduler looks within two seconds")


@budget.command(examples=["grns pool budget delete writing", "grns pool budget delete writing --yes"])
@_NAME
@option.sure_options
@with_session("write", missing=_LIST)
async def delete(session: CliSession, name: str, is_trial: bool, is_sure: bool) -> None:
    """Delete a budget. Pools that it has paused resume."""
    found = await session.client.budgets.get(name)
    option.confirm(f"delete budget {name} ({_cost(found)})", is_sure=is_sure, is_trial=is_trial)
    await session.client.budgets.delete(name)
