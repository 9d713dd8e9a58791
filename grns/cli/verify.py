"""`grns verify`: whether what Postgres holds could have come about as it should, and what it has lost."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from grns.cli import failure
from grns.cli.group import Command
from grns.cli.output import Column, Output, output_option, table, text
from grns.errors import UnavailableError
from grns.text import counted

if TYPE_CHECKING:
    from rich.progress import Progress

    from grns.cli.loss import LossReport
    from grns.maintenance.consistency import ConsistencyCheck

_SHOWN = 20


@click.command(cls=Command)
@click.option(
    "--stuck-after",
    "stuck_after_seconds",
    type=click.FloatRange(min=1),
    metavar="SECONDS",
    help="Time after which a due task counts as stuck. Defaults to GRNS_STUCK_AFTER_SECONDS.",
)
@click.option(
    "--known-failovers",
    "known_failovers",
    type=click.IntRange(0, 2**62),
    metavar="NUMBER",
    default=0,
    help="Ignore failovers up to this number.",
)
@output_option
def verify(stuck_after_seconds: float | None, known_failovers: int, out: Output) -> None:
    """Check every task against its event history and report stuck tasks. Read-only.

    After a failover of PostgreSQL it also asks NATS, which still has the events whose commits were lost, even
    before a janitor detected the failover.

    Exit code 1: an invariant is violated, or something is lost. 5: NATS cannot be reached. Effects outside of
    PostgreSQL are not checked.
    """
    inspection, report = asyncio.run(_look(stuck_after_seconds, known_failovers))
    record = {
        "is_sound": not inspection.counts,
        "tasks": inspection.tasks,
        "log_rows": inspection.log_rows,
        "violations": dict(inspection.counts),
        "findings": [asdict(finding) for finding in inspection.findings],
        **report.record(),
    }
    out.record(record, lambda: _show(inspection, report))
    _conclude(inspection, report)


def _conclude(inspection: ConsistencyCheck, report: LossReport) -> None:
    """Say what is wrong, and end with its exit code."""
    if inspection.counts:
        failure.say("invariants are violated", "grns task show ID  (the whole history of a task)")
    if report.lost:
        failure.say(
            f"a failover of Postgres lost {counted(len(report.lost), 'message')} that had been published",
            _next_step(report.failovers[-1].id),
        )
    if report.trouble is not None:
        failure.say(f"what a failover lost was not looked for: {report.trouble}", "grns broker info")
    if inspection.counts or report.lost:
        raise click.exceptions.Exit(failure.FAILED)
    if report.trouble is not None:
        raise click.exceptions.Exit(UnavailableError.exit_code)


def _next_step(last_failover: int | None) -> str:
    if last_failover is None:
        return "grns janitor  (it notes the failover, so that it has a number)"
    return f"grns verify --known-failovers {last_failover}  (once they are dealt with)"


async def _look(
    stuck_after_seconds: float | None, known_failovers: int
) -> tuple[ConsistencyCheck, LossReport]:
    from grns.cli.loss import look_for_losses
    from grns.cli.session import reading
    from grns.maintenance.consistency import ConsistencyCheck

    async with reading() as session:
        patience = stuck_after_seconds or session.app.settings.stuck_after_seconds
        inspection = ConsistencyCheck(session.database, stuck_after_seconds=patience)
        with _progress() as progress:
            bar = progress.add_task("", total=None, rows=0)
            await inspection.look_at_all(
                lambda: progress.update(bar, completed=inspection.tasks, rows=inspection.log_rows)
            )
            report = await look_for_losses(session, known_failovers)
    return inspection, report


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


def _show(inspection: ConsistencyCheck, report: LossReport) -> None:
    from grns.maintenance.audit import INVARIANTS

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
    report.show()
    failure.note(f"looked at {inspection.tasks:,} tasks and {inspection.log_rows:,} rows of the log")
