"""Replays that somebody has asked for: the relay reads and does them, whoever asked looks on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from grns.errors import ConflictError, InvalidInputError, NotFoundError
from grns.outbox import log
from grns.postgres.database import Database, Row, Session


@dataclass(frozen=True, slots=True)
class Replay:
    """One replay, as the relay does it: what it is about, and how far it is.

    The bounds in the log are None until a relay has begun.
    """

    id: int
    workspace: str | None
    patterns: Sequence[str]
    since: datetime
    until: datetime
    first_seq: int | None
    after_seq: int | None
    up_to_seq: int | None
    stored: int
    duplicates: int


async def request(
    database: Database,
    *,
    workspace: str | None,
    patterns: Sequence[str],
    since: float | datetime,
    until: float | datetime,
    remembered_seconds: float | None,
) -> int:
    """Ask for a replay between two times, or two numbers of seconds ago; returns its number.

    `ConflictError` where it begins earlier than event handlers remember what they handled: they would
    handle it again. None asks for it all the same.
    """
    (row,) = await database.run(
        "request_replay", workspace, list(patterns), *_moment(since), *_moment(until),
        remembered_seconds,
    )  # fmt: skip
    if not row["is_stretch"]:
        raise InvalidInputError(
            "bad_stretch", "nothing lies there: it has to begin in the past, and before it ends"
        )
    if row["id"] is None:
        raise ConflictError("it begins earlier than event handlers remember what they handled")
    number: int = row["id"]
    return number


def _moment(said: float | datetime) -> tuple[datetime | None, float | None]:
    """Return a moment as the statement takes it: as it is, or how many seconds ago by the server's clock."""
    return (said, None) if isinstance(said, datetime) else (None, said)


async def progress(database: Database, number: int) -> Row:
    """Return how far a replay is."""
    rows = await database.run("read_replay", number)
    if not rows:
        raise NotFoundError(f"there is no replay {number} any more")
    return rows[0]


async def withdraw(database: Database, number: int) -> bool:
    """End a replay before it is done; False where it had ended."""
    return bool(await database.run("withdraw_replay", number))


async def oldest(session: Database | Session) -> Replay | None:
    """Return the oldest replay that has not ended."""
    rows = await session.run("next_replay")
    return Replay(**rows[0]) if rows else None


async def hold(session: Database | Session, epoch: int, replay: Replay) -> bool:
    """Note how far it is, done included; False where it is withdrawn, or the lead is another relay's."""
    rows = await session.run(
        "hold_replay", epoch, replay.id, replay.first_seq, replay.after_seq, replay.up_to_seq, replay.stored,
        replay.duplicates,
    )  # fmt: skip
    return bool(rows)


async def read(
    session: Database | Session, replay: Replay, after: int, up_to: int, limit: int, most_bytes: int
) -> log.LogRange:
    """Read one page of what a replay is about."""
    return await log.read_range(
        session, after, up_to, limit, most_bytes, replay.patterns,
        since=replay.since, until=replay.until, workspace=replay.workspace,
    )  # fmt: skip
