"""`grns verify`."""

from __future__ import annotations

from dataclasses import asdict

import click

from grns.cli import failure
from grns.cli.group import Command
from grns.cli.loss import LossReport, look_for_losses
from grns.cli.output import Column, Output, output_option, table, text
from grns.cli.progress import progress
from grns.cli.session import CliSession, with_session
from grns.errors import UnavailableError
from grns.maintenance.audit import INVARIANTS
from grns.maintenance.consistency import ConsistencyCheck
from grns.text import counted

_SHOWN = 20
_COLUMNS = (
    Column("INVARIANT", "invariant"),
    Column("VIOLATIONS", "violations"),
    Column("MEANING", "meaning", may_shrink=True, spare=1),
)


@click.command(cls=Command, examples=["grns verify", "grns verify --stuck-after 600 -o json"])
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
@with_session("read")
async def verify(
    session: CliSession, stuck_after_seconds: float | None, known_failovers: int, out: Output
) -> None:
    """Check every task against its event history and report stuck tasks. Read-only.

    After a failover of PostgreSQL it also asks NATS, which still has the events whose commits were lost, even
    before a janitor detected the failover.

    Exit code 1: an invariant is violated, or something is lost. 5: NATS cannot be reached. Effects outside of
    PostgreSQL are not checked.
    """
    stuck_after = stuck_after_seconds or session.app.settings.stuck_after_seconds
    check = ConsistencyCheck(session.database, stuck_after_seconds=stuck_after)
    with progress(has_lines=False) as show:
        await check.look_at_all(
            lambda: show(check.tasks, None, f"{check.tasks:,} tasks, {check.log_rows:,} rows of the log")
        )
        report = await look_for_losses(session, known_failovers)
    record = {
        "is_sound": not check.counts,
        "tasks": check.tasks,
        "log_rows": check.log_rows,
        "violations": dict(check.counts),
        "findings": [asdict(finding) for finding in check.findings],
        **report.record(),
    }
    out.record(record, lambda: _show(check, report))
    _conclude(check, report)


def _conclude(check: ConsistencyCheck, report: LossReport) -> None:
    """Report the problems, and exit with their code."""
    if check.counts:
        failure.print_error("invariants are violated", "grns task show ID  (the whole history of a task)")
    if report.lost:
        failure.print_error(
            f"a failover of Postgres lost {counted(len(report.lost), 'message')} that had been published",
            _next_step(report.failovers[-1].id),
        )
    if report.trouble is not None:
        failure.print_error(
            f"the loss of a failover was not looked for: {report.trouble}", "grns admin broker info"
        )
    if check.counts or report.lost:
        raise click.exceptions.Exit(failure.FAILED)
    if report.trouble is not None:
        raise click.exceptions.Exit(UnavailableError.exit_code)


def _next_step(last_failover: int | None) -> str:
    if last_failover is None:
        return "grns daemon janitor  (it records the failover, so that it has a number)"
    return f"grns verify --known-failovers {last_failover}  (once they are dealt with)"


def _show(check: ConsistencyCheck, report: LossReport) -> None:
    rows = [
        {"invariant": name, "meaning": meaning, "violations": check.counts[name]}
        for name, meaning in INVARIANTS.items()
    ]
    table(rows, _COLUMNS)
    for finding in check.findings[:_SHOWN]:
        text(f"{finding.invariant}: {finding.task_id or 'the log'}: {finding.detail}")
    hidden = sum(check.counts.values()) - _SHOWN
    if hidden > 0:
        failure.note(f"and {hidden} more; -o json has up to a thousand")
    report.show()
    failure.note(f"checked {check.tasks:,} tasks and {check.log_rows:,} rows of the log")
