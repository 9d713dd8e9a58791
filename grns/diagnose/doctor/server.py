"""Checks of Postgres: connection, durability, transactions and schema."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from grns.diagnose.doctor.finding import Finding, error, note, or_ok, warning
from grns.diagnose.doctor.snapshot import Postgres, Schema, Snapshot
from grns.model.text import lasted

OLDEST = 150_000
# Vacuum removes no row that an open transaction could see.
_LONG_SECONDS, _VERY_LONG_SECONDS = 600.0, 3600.0
_CROWDED = 0.9
_LEAST_WAL_MEGABYTES = 4096


def check_postgres(snapshot: Snapshot) -> Sequence[Finding]:
    """Check the server and its settings."""
    found = snapshot.postgres
    if found is None:
        why = snapshot.troubles.get("postgres", "it was not read")
        return [error("postgres", f"Postgres cannot be reached: {why}", "grns admin config show --origin")]
    checks = (*_server(found), *_isolation(snapshot, found), *_room(found))
    return or_ok("postgres", checks, f"PostgreSQL {found.version} at {snapshot.settings.database_host()}")


def _server(found: Postgres) -> Iterator[Finding]:
    if found.version_number < OLDEST:
        yield error("postgres", f"PostgreSQL {found.version} is older than 15", "upgrade the server")
    if found.is_standby:
        yield error("postgres", "this is a read-only standby", "set GRNS_DATABASE_URL to the primary")
    if not found.fsync or not found.full_page_writes:
        name = "full_page_writes" if found.fsync else "fsync"
        yield error("postgres", f"{name} is off: a crash can lose the whole database", f"set {name} = on")
    if found.synchronous_commit == "off":
        yield error(
            "postgres",
            "synchronous_commit is off: a crash loses accepted tasks and outcomes",
            "set synchronous_commit = on for the role that grns connects as",
        )


def _isolation(snapshot: Snapshot, found: Postgres) -> Iterator[Finding]:
    """Check the isolation level, which applies if grns does not set its own."""
    if found.isolation != "read committed" and not snapshot.settings.database_startup_params:
        yield error(
            "postgres",
            f"default_transaction_isolation is {found.isolation}, and GRNS_DATABASE_STARTUP_PARAMS is false",
            "set default_transaction_isolation = 'read committed' for the role that grns connects as",
        )


def _room(found: Postgres) -> Iterator[Finding]:
    if found.connections > _CROWDED * found.max_connections:
        yield warning(
            "postgres",
            f"{found.connections} of {found.max_connections} connections are in use",
            "lower GRNS_DATABASE_POOL_SIZE, raise max_connections, or use a pooler",
        )


def check_checkpoints(snapshot: Snapshot) -> Sequence[Finding]:
    """Check the setting that slows a busy queue down: after a checkpoint each page is written once more."""
    found = snapshot.postgres
    if found is None:
        return []
    sentence = f"max_wal_size is {found.max_wal_megabytes} MB"
    if found.max_wal_megabytes >= _LEAST_WAL_MEGABYTES:
        return or_ok("checkpoints", (), sentence)
    what_to_do = "set max_wal_size = '8GB' and checkpoint_timeout = '15min'"
    return [note("checkpoints", f"{sentence}: a busy queue runs into frequent checkpoints", what_to_do)]


def check_transactions(snapshot: Snapshot) -> Sequence[Finding]:
    """Check for long transactions of other sessions, which keep dead rows from being vacuumed."""
    found = snapshot.postgres
    if found is None:
        return []
    seconds = found.transaction_seconds or 0.0
    if seconds < _LONG_SECONDS:
        return or_ok("transactions", (), "no transaction has been open for long")
    who = (
        f"process {found.transaction_pid} ({found.transaction_name or 'no name'}, {found.transaction_state})"
    )
    sentence = f"a transaction has been open for {lasted(seconds)}, by {who}: dead rows cannot be vacuumed"
    what_to_do = f"end it, or: select pg_terminate_backend({found.transaction_pid})"
    make = error if seconds > _VERY_LONG_SECONDS else warning
    return [make("transactions", sentence, what_to_do)]


def check_schema(snapshot: Snapshot) -> Sequence[Finding]:
    """Check that the schema has the version that this release needs, and isolates workspaces."""
    found = snapshot.schema
    if found is None:
        return _unread(snapshot, "schema")
    if found.found is None:
        return [error("schema", "this database has no schema grns", "grns admin db upgrade")]
    if found.found != found.needed:
        return [
            error(
                "schema", _differs(found), "grns admin db upgrade, or use the release of grns that created it"
            )
        ]
    findings = [*_apart(found), *_payload_limit(snapshot, found)]
    return or_ok("schema", findings, f"the schema is at {found.found}")


def _differs(found: Schema) -> str:
    return f"the schema is at {found.found}, and this release of grns needs {found.needed}"


def _apart(found: Schema) -> Iterator[Finding]:
    if found.isolation_obstacle is not None:
        make = warning if found.is_isolation_relied_on else note
        yield make(
            "schema",
            f"only grns isolates workspaces, not the database: {found.isolation_obstacle}",
            "grns admin workspace isolate",
        )


def _payload_limit(snapshot: Snapshot, found: Schema) -> Iterator[Finding]:
    ours = snapshot.settings.payload_max_bytes
    if found.payload_bytes not in (None, ours):
        yield warning(
            "schema",
            f"payloads submitted with SQL may have {found.payload_bytes} bytes, and other payloads {ours}",
            f"GRNS_PAYLOAD_MAX_BYTES={ours} grns admin db upgrade, or set it to {found.payload_bytes}",
        )


def _unread(snapshot: Snapshot, name: str) -> Sequence[Finding]:
    why = snapshot.troubles.get(name)
    return [] if why is None else [error(name, f"the {name} could not be read: {why}", "grns doctor --debug")]
