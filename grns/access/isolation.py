"""Tenants: transactions that the database itself confines to one workspace, whatever is asked in them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from grns.errors import UnusableError
from grns.model import subjects
from grns.postgres.database import Database, Row, Session, run

ROLE = "grns_tenant"


@asynccontextmanager
async def as_tenant(database: Database, workspace: str) -> AsyncIterator[Session]:
    """Lend a session that sees and changes what is of one workspace, inside a transaction.

    Role and setting are the transaction's: with it they end, however it ends, and the connection goes back
    as it came. Raises `UnusableError` where the database cannot isolate workspaces: `obstacle` says why.
    """
    async with database.transaction() as connection:
        if not await run(connection, "become_tenant", subjects.token(workspace, name="workspace")):
            raise UnusableError(f"the database has no role {ROLE}: run `grns admin workspace isolate`")
        yield Session(connection, database.vault, database.blob_rules)


async def isolate(database: Database) -> None:
    """Have the database keep workspaces apart, as far as who is connected may do that. Safe to repeat."""
    await database.run("isolate_workspaces")


@dataclass(frozen=True, slots=True)
class Isolation:
    """Whether the database confines transactions to one workspace.

    `obstacle` is what prevents it, with what helps, in one sentence; None: nothing does. `is_relied_on` tells
    that keys of single workspaces exist.
    """

    obstacle: str | None
    is_relied_on: bool

    @property
    def is_missing(self) -> bool:
        """Return whether keys rely on an isolation that the database does not give."""
        return self.obstacle is not None and self.is_relied_on


async def read_isolation(database: Database) -> Isolation:
    """Return whether the database confines transactions to one workspace."""
    (row,) = await database.run("read_isolation")
    return Isolation(_missing(row) or _excess(row), row["has_bound_keys"])


async def obstacle(database: Database) -> str | None:
    """Return what keeps the database from that, and what helps, in one sentence; None where nothing does."""
    return (await read_isolation(database)).obstacle


def _missing(row: Row) -> str | None:
    """Return what is not there yet."""
    who = row["who"]
    if not row["has_role"]:
        return (
            f"there is no role {ROLE}, and {who} may not create roles: have an administrator run `create role"
            f" {ROLE}; grant {ROLE} to {who}`, then run `grns admin workspace isolate`"
        )
    if not row["may_become"]:
        return (
            f"{who} may not act as the role {ROLE}: have an administrator run `grant {ROLE} to {who}`,"
            " then run `grns admin workspace isolate`"
        )
    if not row["is_ready"]:
        return f"the role {ROLE} is not set up: have the tables' owner run `grns admin workspace isolate`"
    return None


def _excess(row: Row) -> str | None:
    """Return what is there and must not be."""
    who = row["who"]
    if not row["is_bound"]:
        return (
            f"the role {ROLE} is a superuser, has BYPASSRLS or the rights of the tables' owner: no policy"
            " confines it, until these are taken from it"
        )
    if not row["is_free"]:
        return (
            f"{who} has the rights of {ROLE} all the time, and sees no row as itself: have an administrator"
            f" run `grant {ROLE} to {who} with inherit false` (before PostgreSQL 16:"
            f" `alter role {who} noinherit`)"
        )
    if row["open_to_all"]:
        return f"the role {ROLE} may use tables that no policy confines: {', '.join(row['open_to_all'])}"
    return None
