"""Translate errors of the driver and the network into errors of grns."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg

from grns.errors import (
    BacklogFullError,
    ConflictError,
    ContendedError,
    GrnsError,
    InvalidInputError,
    LeaseLostError,
    NotFoundError,
    OutcomeUnknownError,
    OverBudgetError,
    RateLimitedError,
    UnavailableError,
    UnusableError,
)

# SQLSTATE classes of invalid values: only the row with the value fails.
_DATA_CLASSES = ("22", "23", "54", "P0")
# The statement was refused or undone as a whole; sent again, it may pass.
_TRANSIENT = ("40001", "40P01", "55P03", "57014")
MISSING_SCHEMA = ("3F000", "42P01", "42883", "42703")
# No partition of the event log fits the row (a check without a name) until the janitor creates one.
_NO_PARTITION = ("23514", "grns", "events", None)
_BROKEN_TRANSACTION = "25P02"
# What functions of grns raise: the detail is the code of the error.
_OURS = "grns: "
_TAKEN = "23505"
_BY_DETAIL: dict[str, type[GrnsError]] = {
    "backlog_full": BacklogFullError,
    "blobs_full": RateLimitedError,
    "lease_lost": LeaseLostError,
    "mailbox_full": RateLimitedError,
    "not_found": NotFoundError,
    "over_budget": OverBudgetError,
    "workflow_sealed": ConflictError,
}
_LOGIN = ("28000", "28P01", "3D000", "42501")


# All errors that asyncpg raises for a statement or a connection.
DRIVER_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)


@contextmanager
def translated() -> Iterator[None]:
    """Turn errors of asyncpg and of the network into grns' own."""
    try:
        yield
    except asyncpg.PostgresError as error:
        raise _from_server(error) from error
    except (asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
        raise _from_driver(error) from error
    except (TimeoutError, OSError, asyncio.IncompleteReadError) as error:
        raise OutcomeUnknownError(f"no answer from Postgres: {_text(error)}") from error


def _from_server(error: asyncpg.PostgresError) -> GrnsError:
    state = error.sqlstate or ""
    if state in _TRANSIENT:
        return ContendedError(f"Postgres asks to try again: {error}")
    if (state, error.schema_name, error.table_name, error.constraint_name) == _NO_PARTITION:
        return UnavailableError("the log has no room: is a janitor running (`grns daemon janitor`)?")
    if str(error).startswith(_OURS):
        message = str(error.args[0]).removeprefix(_OURS)[:500]
        code = error.detail or "bad_input"
        kind = ConflictError if state == _TAKEN else _BY_DETAIL.get(code)
        return InvalidInputError(code, message) if kind is None else kind(message)
    if state.startswith(_DATA_CLASSES):
        return InvalidInputError("refused_by_database", str(error)[:500])
    if state in MISSING_SCHEMA:
        return missing_schema(error)
    if state in _LOGIN:
        return UnusableError(f"Postgres refuses: {error}")
    if state == _BROKEN_TRANSACTION:
        return InvalidInputError(
            "transaction_broken",
            "a statement of this transaction failed, and all that was written in it is undone: where you"
            " catch such an error, put the statement into `async with connection.transaction():`",
        )
    if state.startswith("53"):
        return UnavailableError(f"Postgres has no room: {error}")
    # Connection failures, shutdowns, crashes: the commit may have happened.
    return OutcomeUnknownError(f"Postgres went away: {error}")


def missing_schema(error: Exception) -> UnusableError:
    """Return the error of a statement that names what the schema does not have."""
    return UnusableError(f"the schema grns is missing or old ({error}): run `grns admin db upgrade`")


def _from_driver(error: asyncpg.InterfaceError | asyncpg.InternalClientError) -> GrnsError:
    text = str(error)
    if isinstance(error, asyncpg.DataError):
        return InvalidInputError("refused_by_database", text[:500])
    return OutcomeUnknownError(f"the connection to Postgres broke: {text[:500]}")


def _text(error: BaseException) -> str:
    return str(error) or type(error).__name__
