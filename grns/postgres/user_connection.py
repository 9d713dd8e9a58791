"""Statements on a connection that a user passes: of asyncpg, SQLAlchemy, psycopg or Django."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import asyncpg

from grns.errors import InvalidInputError
from grns.postgres.errors import MISSING_SCHEMA, missing_schema
from grns.postgres.statements import statement

_COMMENT = re.compile(r"--.*")
_PLACEHOLDER = re.compile(r"\$\d+")


async def fetch(connection: Any, name: str, arguments: Sequence[Any]) -> Sequence[Any]:
    """Run a statement of grns, and return its rows.

    Args:
        connection: one of asyncpg, or an `AsyncSession` or `AsyncConnection` of SQLAlchemy on asyncpg.
        name: name of the statement.
        arguments: its arguments.
    """
    if isinstance(connection, asyncpg.Pool):
        raise InvalidInputError(
            "bad_connection", "connection is a pool: pass the connection whose transaction the task joins"
        )
    if hasattr(connection, "fetch"):
        with _explained():
            rows: Sequence[Any] = await connection.fetch(statement(name), *arguments)
        return rows
    if _is_async(connection) and _is_session(connection):
        connection = await connection.connection()  # it lends its own
    if not _is_async(connection) or not hasattr(connection, "exec_driver_sql"):
        raise InvalidInputError(
            "bad_connection",
            "connection must be asyncpg's, or an AsyncSession or AsyncConnection,"
            f" not {type(connection).__name__}; grns.sync.Client takes synchronous ones",
        )
    with _explained():
        result = await connection.exec_driver_sql(statement(name), tuple(arguments))
    found: Sequence[Any] = result.mappings().all()
    return found


def fetch_sync(connection: Any, name: str, arguments: Sequence[Any]) -> Sequence[Mapping[str, Any]]:
    """Run a statement of grns, and return its rows.

    Args:
        connection: one of psycopg or Django, or a `Session` or `Connection` of SQLAlchemy on psycopg.
        name: name of a statement that uses its arguments in order, each once.
        arguments: its arguments.
    """
    query = _PLACEHOLDER.sub("%s", _COMMENT.sub("", statement(name)))
    values = tuple([_plain(argument) for argument in arguments])
    if _is_session(connection) and not _is_async(connection):
        connection = connection.connection()  # it lends its own
    if _is_async(connection) or not (hasattr(connection, "exec_driver_sql") or hasattr(connection, "cursor")):
        raise InvalidInputError(
            "bad_connection",
            "connection must be one of psycopg or Django, or a Session or Connection of SQLAlchemy,"
            f" not {type(connection).__name__}; grns.connect() takes asynchronous ones",
        )
    if hasattr(connection, "exec_driver_sql"):
        with _explained():
            found: Sequence[Mapping[str, Any]] = connection.exec_driver_sql(query, values).mappings().all()
        return found
    with _explained(), _cursor(connection) as cursor:
        cursor.execute(query, values)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


@contextmanager
def _explained() -> Iterator[None]:
    """Turn the error of any driver about a missing schema into that of grns; others stay as they are."""
    try:
        yield
    except Exception as error:
        causes = (error, error.__cause__, getattr(error, "orig", None))
        if any(getattr(one, "sqlstate", None) in MISSING_SCHEMA for one in causes):
            raise missing_schema(error) from error
        raise


def _cursor(connection: Any) -> Any:
    """Return a cursor of plain rows, whatever row factory and cursors the user's connection is set to."""
    psycopg = sys.modules.get("psycopg")
    if psycopg is not None and isinstance(connection, psycopg.Connection):
        return psycopg.Cursor(connection, row_factory=psycopg.rows.tuple_row)
    return connection.cursor()


def _is_async(connection: Any) -> bool:
    return inspect.iscoroutinefunction(getattr(connection, "execute", None))


def _is_session(connection: Any) -> bool:
    return not hasattr(connection, "exec_driver_sql") and callable(getattr(connection, "connection", None))


def _plain(argument: Any) -> Any:
    """Return an argument without UUIDs, which not every driver knows how to send."""
    if not isinstance(argument, list):
        return argument
    return [str(one) if isinstance(one, UUID) else one for one in argument]
