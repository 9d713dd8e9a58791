"""Doing something to every task that a filter finds: counted first, asked for, then looked on."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from grns.cli import failure, option
from grns.cli.filter import read, together
from grns.cli.output import Column, Output, text
from grns.text import counted

if TYPE_CHECKING:
    from grns.model.filter import Filter
    from grns.operations.model import OperationRequest
    from grns.operations.service import Operation, Preview

_RATE = re.compile(r"(\d+(?:\.\d+)?)(?:/(s|min|h))?", re.ASCII)
_PER_MINUTE = {"s": 60.0, "min": 1.0, "h": 1 / 60, None: 1.0}
_BAD = "bad_operation"


class Rate(click.ParamType[float]):
    """So many tasks in a second, a minute or an hour: `10/s`, `600/min`."""

    name = "rate"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the tasks a minute."""
        if isinstance(value, float):
            return value
        found = _RATE.fullmatch(value)
        rate = float(found[1]) * _PER_MINUTE[found[2]] if found else 0.0
        if not 0 < rate <= 1_000_000:
            sentence = f"{ascii(value)[:100]} is no rate: write 10/s, 600/min or 1000/h"
            raise option.InvalidOption(_BAD, sentence, param, ctx)
        return rate


def bulk_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add what each operation takes: `wanted`, `saved`, `rate_per_minute`, `reason` and `is_detached`."""
    for add in (
        click.option("--detach", "is_detached", is_flag=True, help="With --filter: return immediately."),
        click.option("--reason", help="Reason, kept in the log and in each event."),
        click.option(
            "--rate", "rate_per_minute", type=Rate(), metavar="RATE", help="With --filter: 10/s, 600/min."
        ),
        click.option(
            "--saved", metavar="NAME", type=option.Token("name"), help="Also apply the saved filter NAME."
        ),
        click.option(
            "--filter", "wanted", metavar="FILTER", help="All tasks that match this filter: type:fetch_page."
        ),
    ):  # fmt: skip
        function = add(function)
    return function


def redrive_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add what only a redrive takes: `canary`, `patch` and `agent_type`."""
    for add in (
        click.option(
            "--agent-type", metavar="NAME", type=option.Token("agent_type"),
            help="With --filter: pool that runs them instead.",
        ),
        click.option(
            "--patch", metavar="JSON", help="Merge patch of each payload: JSON, @FILE, or -."
        ),
        click.option(
            "--canary", is_flag=True, help="With --filter: run one task first, the others if it succeeds."
        ),
    ):  # fmt: skip
        function = add(function)
    return function


def run(
    out: Output,
    action: str,
    *,
    wanted: str | None,
    saved: str | None,
    is_trial: bool,
    is_sure: bool,
    is_detached: bool,
    patch: str | None = None,
    **said: Any,
) -> None:
    """Count what a filter finds, ask, have it done and look on; with a dry run only count."""
    found = read(wanted) if saved is None else asyncio.run(_saved(read(wanted), saved))
    asked = _request(action, str(found), patch, said)
    seen = asyncio.run(_preview(asked))
    if is_trial:
        _present(out, action, seen)
        return
    if seen.count == 0:
        failure.note(f"nothing to {action}: no task is like {asked.filter}")
        return
    option.confirm_count(f"{action} {_count(seen)}", seen.count, is_sure=is_sure)
    made = asyncio.run(_create(asked))
    if is_detached:
        out.record(asdict(made), lambda: text(str(made.id)))
        return
    from grns.cli.watch import watch

    failure.note(f"operation {made.id}: it goes on by itself; grns operation watch {made.id} looks on again")
    watch(out, made.id, None)


def _request(action: str, wanted: str, patch: str | None, said: dict[str, Any]) -> OperationRequest:
    from grns.errors import InvalidInputError
    from grns.operations.model import request

    try:
        return request(action=action, filter=wanted, patch=read_patch(patch), **said)
    except InvalidInputError as error:
        if error.code == "bad_filter":
            failure.hinted(error, "grns filter terms")
        raise


def read_patch(said: str | None) -> dict[str, Any] | None:
    """Return the object of `--patch`: JSON, @FILE, or - for stdin. None if it was not given."""
    from grns.errors import InvalidInputError
    from grns.model.json import parse
    from grns.settings import load

    if said is None:
        return None
    limits = load().payload_limits
    document = parse(option.read_document(said, limits.document_bytes), limits)
    if not isinstance(document, dict):
        raise InvalidInputError(
            "bad_patch", f"--patch must be a JSON object, got {json.dumps(document)[:40]}"
        )
    return document


async def _saved(wanted: Filter, saved: str) -> Filter:
    from grns.cli.session import reading

    async with reading() as session:
        return await together(session, wanted, saved)


async def _preview(asked: OperationRequest) -> Preview:
    from grns.cli.session import reading
    from grns.operations.service import preview

    async with reading() as session:
        return await preview(session.database, asked, workspace=session.workspace)


async def _create(asked: OperationRequest) -> Operation:
    from grns.cli.session import reading
    from grns.model.actor import of_process
    from grns.operations.service import create_operation

    async with reading() as session:
        return await create_operation(
            session.database, asked, workspace=session.workspace, actor=of_process("cli")
        )


def _present(out: Output, action: str, found: Preview) -> None:
    columns = [
        Column("TYPE", lambda row: row["task_type"], may_shrink=True),
        Column("TASKS", lambda row: row["tasks"]),
        Column("ONE OF THEM", lambda row: row["sample_task_id"]),
    ]
    rows = [asdict(one) for one in found.by_type]
    out.rows(rows, columns, count=found.count, is_exact=found.is_exact)
    failure.note(f"would {action} {_count(found)}")


def _count(found: Preview) -> str:
    return f"{'' if found.is_exact else 'at least '}{counted(found.count, 'task')}"
