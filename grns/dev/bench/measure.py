"""What a benchmark asks of Postgres."""

from __future__ import annotations

from dataclasses import dataclass

from grns.postgres.database import Database, Session


@dataclass(frozen=True, slots=True)
class TaskRate:
    """How many tasks are open and have ended, and the seconds from the first claim to the last end."""

    open: int
    ended: int
    seconds: float


async def ping(session: Session) -> None:
    """Go to the server and back."""
    await session.run("ping_server")


async def commit(session: Session, text: str) -> None:
    """Commit a text that nobody will read, by itself."""
    await session.run("commit_text", text)


async def pace(database: Database) -> TaskRate:
    """Return how the tasks have fared; it reads all of them."""
    return TaskRate(*(await database.run("read_pace"))[0])
