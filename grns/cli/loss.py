"""Failovers of Postgres and the messages that they lost, for `grns verify`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from grns.cli import failure
from grns.cli.output import Column, heading, table, text
from grns.cli.session import CliSession
from grns.errors import GrnsError
from grns.maintenance.failover import MARGIN, Losses, LostMessage, find_losses
from grns.maintenance.failovers import Failover, failovers, unnoted_failover
from grns.model.envelope import rfc3339
from grns.text import counted

_SHOWN = 50


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
            table([asdict(one) for one in self.lost[:_SHOWN]], _COLUMNS)
        if len(self.lost) > _SHOWN:
            failure.note(f"and {len(self.lost) - _SHOWN} more; -o json has all")
        _note_limits(self.failovers, self.losses)


_COLUMNS = (
    Column("FAILOVER", lambda row: row["failover"] or "not recorded", spare=2),
    Column("TIME", "happened_at", spare=1),
    Column("TASK", "task_id"),
    Column("VERSION", "version"),
    Column("KIND", "kind"),
    Column("TASK IS NOW", lambda row: row["status"] or "unknown here"),
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
