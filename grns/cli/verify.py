"""`grns admin verify`: every task against its history, and what a failover of Postgres lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import click

from grns.cli import failure
from grns.cli.group import Command
from grns.cli.output import Column, Output, heading, output_option, table, text
from grns.cli.progress import progress
from grns.cli.session import CliSession, with_session
from grns.errors import GrnsError, UnavailableError
from grns.maintenance.audit import INVARIANTS
from grns.maintenance.consistency import ConsistencyCheck
from grns.maintenance.failover import MARGIN, Losses, LostMessage, find_losses
from grns.maintenance.failovers import Failover, failovers, unnoted_failover
from grns.model.envelope import rfc3339
from grns.model.text import counted

_SHOWN, _SHOWN_LOST = 20, 50
_COLUMNS = (
    Column("INVARIANT", "invariant"),
    Column("VIOLATIONS", "violations"),
    Column("MEANING", "meaning", may_shrink=True, spare=1),
)
_LOST = (
    Column("FAILOVER", lambda row: row["failover"] or "not recorded", spare=2),
    Column("TIME", "happened_at", spare=1),
    Column("TASK", "task_id"),
    Column("VERSION", "version"),
    Column("KIND", "kind"),
    Column("TASK IS NOW", lambda row: row["status"] or "unknown here"),
)


@dataclass(frozen=True)
class LossReport:
    """New failovers, what they lost, and why that could not be read."""

    failovers: Sequence[Failover]
    losses: Losses | None
    trouble: str | None

    @property
    def lost(self) -> Sequence[LostMessage]:
        """The messages that were published and are not in the log."""
        return () if self.losses is None else self.losses.lost

    def record(self) -> dict[str, Any]:
        """Return the fields of the JSON document."""
        return {
            "failovers": [asdict(failover) for failover in self.failovers],
            "lost": None if self.losses is None else [asdict(one) for one in self.losses.lost],
            "lost_not_looked_for": self.trouble,
            "streams_reach_back_to": {} if self.losses is None else self.losses.reaches_back_to,
        }

    def show(self) -> None:
        """Write it for people; nothing without a failover."""
        for failover in self.failovers:
            if failover.id is None:
                heading("a failover that is not recorded yet: no janitor ran since")
            else:
                heading(f"failover {failover.id}, detected {rfc3339(failover.noticed_at)}")
            text(_described(failover))
        if self.losses is None:
            return
        if self.lost:
            heading("published, and no longer in the log")
            table([asdict(one) for one in self.lost[:_SHOWN_LOST]], _LOST)
        if len(self.lost) > _SHOWN_LOST:
            failure.note(f"and {len(self.lost) - _SHOWN_LOST} more; -o json has all")
        _note_limits(self.failovers, self.losses)


@click.command(cls=Command, examples=["grns admin verify", "grns admin verify --stuck-after 600 -o json"])
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

    Decisions of schedules are checked against their tasks.

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
        "schedule_runs": check.schedule_runs,
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
    return f"grns admin verify --known-failovers {last_failover}  (once they are dealt with)"


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
    failure.note(
        f"checked {check.tasks:,} tasks, {check.log_rows:,} rows of the log,"
        f" {check.schedule_runs:,} decisions of schedules"
    )


async def look_for_losses(session: CliSession, known: int) -> LossReport:
    """Read new failovers, and find in the broker the messages that they lost."""
    new = await _new_failovers(session, known)
    if not new:
        return LossReport((), None, None)
    try:
        await session.transport.connect()
        losses = await find_losses(session.database, session.transport, new)
    except GrnsError as error:  # the rest of the report is shown all the same
        return LossReport(new, None, str(error))
    return LossReport(new, losses, None)


async def _new_failovers(session: CliSession, known: int) -> list[Failover]:
    """Return the failovers after `known`; the last of them may not be recorded yet."""
    try:
        new = await unnoted_failover(session.database)
    except GrnsError as error:
        # A proxy may not know which server it stands for; recorded failovers are shown all the same.
        failure.note(f"cannot check for a failover that is not recorded yet: {error}")
        new = None
    recorded = await failovers(session.database, known)
    if new is None or any(_is_same(one, new) for one in recorded):  # a janitor has just recorded it
        return recorded
    return [*recorded, new]


def _is_same(one: Failover, other: Failover) -> bool:
    return replace(one, id=None, noticed_at=other.noticed_at) == other


def _described(failover: Failover) -> str:
    before = f"timeline {failover.old_timeline} of {failover.old_system_identifier}"
    after = f"timeline {failover.new_timeline}"
    if not failover.is_same_cluster:
        after += f" of {failover.new_system_identifier}, another cluster"
    return f"{before} was seen last at {rfc3339(failover.last_seen_at)}; since then it is {after}"


def _note_limits(known: Sequence[Failover], losses: Losses) -> None:
    """Write how complete the report is."""
    margin = f"{MARGIN.total_seconds() / 60:.0f} minutes"
    failure.note(
        f"compared {counted(losses.messages, 'message')} that the broker stored from {margin} before a"
        f" failover to {margin} after it"
    )
    for stream, first_at in losses.reaches_back_to.items():
        reach = "holds nothing" if first_at is None else f"reaches back to {rfc3339(first_at)}"
        failure.note(f"{stream} {reach}")
    failure.note(
        "lost changes that were never published are unknown: submissions, claims and ends after"
        f" {rfc3339(known[0].last_seen_at)}; submit again with the same idempotency keys, which is safe"
    )
