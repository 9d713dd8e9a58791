"""What `grns verify` says of failovers of Postgres, and of what they are known to have lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from grns.cli import failure
from grns.cli.output import Column, heading, table, text
from grns.cli.session import CliSession
from grns.errors import GrnsError
from grns.model.envelope import rfc3339
from grns.text import counted

if TYPE_CHECKING:
    from grns.maintenance.failover import Losses, LostMessage
    from grns.maintenance.failovers import Failover

_SHOWN = 50


@dataclass(frozen=True)
class LossReport:
    """The failovers that are not known yet, what they lost, and why that could not be looked for."""

    failovers: Sequence[Failover]
    losses: Losses | None
    trouble: str | None

    @property
    def lost(self) -> Sequence[LostMessage]:
        """What was published and is not in the log."""
        return () if self.losses is None else self.losses.lost

    def record(self) -> dict[str, Any]:
        """Return what goes into the JSON document."""
        return {
            "failovers": [asdict(failover) for failover in self.failovers],
            "lost": None if self.losses is None else [asdict(one) for one in self.losses.lost],
            "lost_not_looked_for": self.trouble,
            "streams_reach_back_to": {} if self.losses is None else self.losses.reaches_back_to,
        }

    def show(self) -> None:
        """Write it for people; nothing where there was no failover."""
        for failover in self.failovers:
            if failover.id is None:
                heading("a failover that nobody has noted yet: no janitor has looked since")
            else:
                heading(f"failover {failover.id}, noticed {rfc3339(failover.noticed_at)}")
            text(_what(failover))
        if self.losses is None:
            return
        if self.lost:
            heading("published, and not in the log any more")
            table([asdict(one) for one in self.lost[:_SHOWN]], _COLUMNS)
        if len(self.lost) > _SHOWN:
            failure.note(f"and {len(self.lost) - _SHOWN} more; -o json has all")
        _say_what_is_known(self.failovers, self.losses)


_COLUMNS = [
    Column("FAILOVER", lambda row: row["failover"] or "not noted", spare=2),
    Column("TIME", lambda row: row["happened_at"], spare=1),
    Column("TASK", lambda row: row["task_id"]),
    Column("VERSION", lambda row: row["version"]),
    Column("KIND", lambda row: row["kind"]),
    Column("TASK IS NOW", lambda row: row["status"] or "unknown here"),
]


async def look_for_losses(session: CliSession, known: int) -> LossReport:
    """Look for failovers, and ask the broker what it still has of what they lost."""
    from grns.maintenance.failover import find_losses

    noticed = await _noticed(session, known)
    if not noticed:
        return LossReport((), None, None)
    try:
        await session.transport.connect()
        try:
            return LossReport(noticed, await find_losses(session.database, session.transport, noticed), None)
        finally:
            await session.transport.close()
    except GrnsError as error:
        # Whatever it was: the rest of what was found is told all the same.
        return LossReport(noticed, None, str(error))


async def _noticed(session: CliSession, known: int) -> list[Failover]:
    """Return the failovers that are not known yet; the last of them may be one that nobody has noted."""
    from grns.maintenance.failovers import failovers, unnoted_failover

    try:
        new = await unnoted_failover(session.database)
    except GrnsError as error:
        # Something like Postgres may not know which server it is; what was noted is told all the same.
        failure.note(f"whether Postgres was failed over and nobody has noted it cannot be told: {error}")
        new = None
    noted = await failovers(session.database, known)
    if new is None or any(_is_same(one, new) for one in noted):  # a janitor has just noted it
        return noted
    return [*noted, new]


def _is_same(one: Failover, other: Failover) -> bool:
    return replace(one, id=None, noticed_at=other.noticed_at) == other


def _what(failover: Failover) -> str:
    before = f"timeline {failover.old_timeline} of {failover.old_system_identifier}"
    after = f"timeline {failover.new_timeline}"
    if not failover.is_same_cluster:
        after += f" of {failover.new_system_identifier}, another cluster"
    return f"{before} was seen last at {rfc3339(failover.last_seen_at)}; since then it is {after}"


def _say_what_is_known(failovers: Sequence[Failover], losses: Losses) -> None:
    """Say how far this can be relied on."""
    from grns.maintenance.failover import MARGIN

    margin = f"{MARGIN.total_seconds() / 60:.0f} minutes"
    failure.note(
        f"looked up {counted(losses.messages, 'message')} that the broker stored from {margin} before a"
        f" failover to {margin} after it"
    )
    for stream, first_at in losses.reaches_back_to.items():
        reach = "holds nothing" if first_at is None else f"reaches back to {rfc3339(first_at)}"
        failure.note(f"{stream} {reach}")
    failure.note(
        "what was committed and never published cannot be known: submissions, claims and ends after"
        f" {rfc3339(failovers[0].last_seen_at)}; to submit again under the same idempotency keys is safe"
    )
