"""`grns verify`: whether what Postgres holds could have come about as it should."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from grns.cli import failure
from grns.cli.group import Verb
from grns.cli.output import Column, Output, output_option, table, text

if TYPE_CHECKING:
    from rich.progress import Progress

    from grns.inspection import Inspection

_SHOWN = 20


@click.command(cls=Verb)
@click.option(
    "--patience",
    "patience_seconds",
    type=click.FloatRange(min=1),
    metavar="SECONDS",
    help="How long something that is due may wait before it counts as stuck; else GRNS_PATIENCE_SECONDS.",
)
@output_option
def verify(patience_seconds: float | None, out: Output) -> None:
    """Hold all tasks against the log, and look for what is stuck. It only reads, beside everything else.

    Exit code 1: an invariant is violated. Effects outside of Postgres cannot be seen from here.
    """
    inspection = asyncio.run(_inspect(patience_seconds))
    record = {
        "is_sound": not inspection.counts,
        "tasks": inspection.tasks,
        "log_rows": inspection.log_rows,
        "violations": dict(inspection.counts),
        "findings": [asdict(finding) for finding in inspection.findings],
    }
    out.record(record, lambda: _show(inspection))
    if inspection.counts:
        failure.say("invariants are violated", "grns task show ID  (the whole history of a task)")
        raise click.exceptions.Exit(failure.FAILED)


async def _inspect(patience_seconds: float | None) -> Inspection:
    from grns.cli.session import reading
    from grns.inspection import Inspection

    async with reading() as session:
        patience = patience_seconds or session.app.settings.patience_seconds
        inspection = Inspection(session.database, patience_seconds=patience)
        with _progress() as progress:
            bar = progress.add_task("", total=None, rows=0)
            await inspection.look_at_all(
                lambda: progress.update(bar, completed=inspection.tasks, rows=inspection.log_rows)
            )
    return inspection


@contextmanager
def _progress() -> Iterator[Progress]:
    """Show how far it is, on a terminal, and leave nothing of it behind."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    counted = TextColumn("{task.completed:,} tasks, {task.fields[rows]:,} rows of the log")
    console = Console(stderr=True)
    with Progress(
        SpinnerColumn(), counted, TimeElapsedColumn(), console=console, transient=True,
        disable=not sys.stderr.isatty(),
    ) as progress:  # fmt: skip
        yield progress


def _show(inspection: Inspection) -> None:
    from grns.store.audit import INVARIANTS

    rows = [
        {"invariant": name, "meaning": meaning, "violations": inspection.counts[name]}
        for name, meaning in INVARIANTS.items()
    ]
    columns = [
        Column("INVARIANT", lambda row: row["invariant"]),
        Column("VIOLATIONS", lambda row: row["violations"]),
        Column("MEANING", lambda row: row["meaning"], may_shrink=True, spare=1),
    ]
    table(rows, columns)
    for finding in inspection.findings[:_SHOWN]:
        text(f"{finding.invariant}: {finding.task_id or 'the log'}: {finding.detail}")
    hidden = sum(inspection.counts.values()) - _SHOWN
    if hidden > 0:
        failure.note(f"and {hidden} more; -o json has up to a thousand")
    failure.note(f"looked at {inspection.tasks:,} tasks and {inspection.log_rows:,} rows of the log")
