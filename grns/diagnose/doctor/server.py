"""Postgres: whether it can be reached, keeps what it has committed, and has the schema that is needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from grns.diagnose.doctor.finding import Finding, error, note, or_ok, warning
from grns.diagnose.doctor.snapshot import Postgres, Schema, Snapshot
from grns.text import lasted

OLDEST = 150_000
# Vacuum cleans up nothing that a transaction could see which is open for as long.
_LONG_SECONDS, _VERY_LONG_SECONDS = 600.0, 3600.0
_CROWDED = 0.9


def check_postgres(read: Snapshot) -> Sequence[Finding]:
    """Return what is wrong with the server."""
    found = read.postgres
    if found is None:
        why = read.troubles.get("postgres", "it was not asked")
        return [error("postgres", f"Postgres cannot be reached: {why}", "grns admin config show --origin")]
    checks = (*_server(found), *_isolation(read, found), *_room(found))
    return or_ok("postgres", checks, f"PostgreSQL {found.version} at {read.settings.database_host()}")


def _server(found: Postgres) -> Iterator[Finding]:
    if found.version_number < OLDEST:
        yield error("postgres", f"PostgreSQL {found.version} is older than 15", "upgrade the server")
    if found.is_standby:
        yield error(
            "postgres", "this is a standby, which only reads", "let GRNS_DATABASE_URL name the primary"
        )
    if not found.fsync or not found.full_page_writes:
        name = "full_page_writes" if found.fsync else "fsync"
        yield error("postgres", f"{name} is off: a crash may lose the whole database", f"set {name} = on")
    if found.synchronous_commit == "off":
        yield error(
            "postgres",
            "synchronous_commit is off: a crash loses tasks that were accepted, and ends that were told",
            "set synchronous_commit = on for the role that grns connects as",
        )


def _isolation(read: Snapshot, found: Postgres) -> Iterator[Finding]:
    """Without our own settings, that of the server is in force in each statement."""
    if found.isolation != "read committed" and not read.settings.database_startup_params:
        yield error(
            "postgres",
            f"default_transaction_isolation is {found.isolation}, and GRNS_DATABASE_STARTUP_PARAMS is false",
            "set default_transaction_isolation = 'read committed' for the role that grns connects as",
        )


def _room(found: Postgres) -> Iterator[Finding]:
    if found.connections > _CROWDED * found.max_connections:
        yield warning(
            "postgres",
            f"{found.connections} of {found.max_connections} connections are taken",
            "lower GRNS_DATABASE_POOL_SIZE, raise max_connections, or put a pooler in between",
        )


def check_transactions(read: Snapshot) -> Sequence[Finding]:
    """Return whether somebody's transaction is open for long: dead rows stay, and counts and events wait."""
    found = read.postgres
    if found is None:
        return []
    seconds = found.transaction_seconds or 0.0
    if seconds < _LONG_SECONDS:
        return or_ok("transactions", (), "no transaction is open for long")
    who = (
        f"process {found.transaction_pid} ({found.transaction_name or 'no name'}, {found.transaction_state})"
    )
    sentence = (
        f"a transaction is open for {lasted(seconds)}, by {who}: what it could see cannot be cleaned up"
    )
    what_to_do = f"end it there, or: select pg_terminate_backend({found.transaction_pid})"
    make = error if seconds > _VERY_LONG_SECONDS else warning
    return [make("transactions", sentence, what_to_do)]


def check_schema(read: Snapshot) -> Sequence[Finding]:
    """Return whether the schema is the one that this version needs, and keeps workspaces apart."""
    found = read.schema
    if found is None:
        return _unread(read, "schema")
    if found.found is None:
        return [error("schema", "there is no schema grns in this database", "grns admin db upgrade")]
    if found.found != found.needed:
        return [
            error("schema", _differs(found), "grns admin db upgrade, or use the version of grns that made it")
        ]
    findings = [*_apart(found), *_payload_limit(read, found)]
    return or_ok("schema", findings, f"the schema is at {found.found}")


def _differs(found: Schema) -> str:
    return f"the schema is at {found.found}, and this version of grns needs {found.needed}"


def _apart(found: Schema) -> Iterator[Finding]:
    if found.isolation_obstacle is not None:
        make = warning if found.is_isolation_relied_on else note
        yield make(
            "schema",
            f"the database does not keep workspaces apart, grns alone does: {found.isolation_obstacle}",
            "grns workspace isolate",
        )


def _payload_limit(read: Snapshot, found: Schema) -> Iterator[Finding]:
    ours = read.settings.payload_max_bytes
    if found.payload_bytes not in (None, ours):
        yield warning(
            "schema",
            f"a payload submitted with SQL may have {found.payload_bytes} bytes, and here {ours}",
            f"GRNS_PAYLOAD_MAX_BYTES={ours} grns admin db upgrade, or set it to {found.payload_bytes} here",
        )


def _unread(read: Snapshot, name: str) -> Sequence[Finding]:
    why = read.troubles.get(name)
    return [] if why is None else [error(name, f"it could not be read: {why}", "grns doctor --debug")]
