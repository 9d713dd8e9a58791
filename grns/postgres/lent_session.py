"""SQLAlchemy sessions on a connection of ours, inside its transaction."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.pool import NullPool

from grns.postgres.database import Connection

_LENT: ContextVar[_Lent] = ContextVar("grns_lent")


class _Lent:
    """A connection that a session may use, and not close."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    async def close(self, **_: Any) -> None:
        """Leave it open."""

    def terminate(self) -> None:
        """Leave it open."""


@asynccontextmanager
async def lent_session(connection: Connection, options: dict[str, Any]) -> AsyncIterator[AsyncSession]:
    """Open a session in a savepoint of the connection's transaction; the end of the block commits it."""
    _LENT.set(_Lent(connection))
    async with AsyncSession(_engine(), **options) as session:
        yield session
        await session.commit()


@cache
def _engine() -> AsyncEngine:
    async def lend() -> Any:
        return _LENT.get()

    return create_async_engine("postgresql+asyncpg://", async_creator=lend, poolclass=NullPool)
