"""`grns admin secret`: the keys that seal secrets of payloads."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import click

from grns.cli import failure
from grns.cli.group import Group
from grns.cli.output import Column, Output, output_option
from grns.cli.progress import progress
from grns.cli.session import CliSession, with_session
from grns.errors import InvalidInputError
from grns.model.seal import MasterKey
from grns.tasks.rotate_secrets import count_sealed
from grns.tasks.rotate_secrets import rotate as rotate_secrets

_NAME = re.compile(r"[A-Za-z0-9_-]{1,32}")
_COLUMNS = (
    Column("KEY", "name"),
    Column("ROWS", "rows"),
    Column("SEALS", "is_current"),
    Column("KNOWN", "is_known"),
)


@click.group(cls=Group)
def secret() -> None:
    """Make the keys that seal secrets of payloads; rotate them."""


@secret.command("new-key", examples=["grns admin secret new-key > keys", "grns admin secret new-key 2027"])
@click.argument("name", metavar="[NAME]", required=False)
def new_key(name: str | None) -> None:
    """Print a new key, as a line of the file that GRNS_KEYS_FILE names.

    The first line of the file seals; all of them open. NAME defaults to the date.
    """
    name = name or datetime.now(UTC).strftime("%Y-%m-%d")
    if _NAME.fullmatch(name) is None:
        raise InvalidInputError("bad_key", "a name has up to 32 letters, digits, _ or -")
    click.echo(MasterKey.new(name).line())
    failure.note("put it into a file that only grns reads, and name that in GRNS_KEYS_FILE of every process")


@secret.command(examples=["grns admin secret keys", "grns admin secret keys -o json"])
@output_option
@with_session("read")
async def keys(session: CliSession, out: Output) -> None:
    """Count the rows with secrets by the key that sealed them. It reads all tasks."""
    ring = session.database.vault.keys
    known = [] if ring is None else ring.names
    found = (await count_sealed(session.database)).by_key
    names = [*known, *sorted(found.keys() - set(known))]
    rows = [
        {
            "name": name, "rows": found[name], "is_current": name == known[0] if known else False,
            "is_known": name in known,
        }
        for name in names
    ]  # fmt: skip
    out.rows(rows, _COLUMNS, nothing="there are no keys, and no secrets")


@secret.command(examples=["grns admin secret rotate --dry-run", "grns admin secret rotate"])
@click.option("--dry-run", "is_dry", is_flag=True, help="Only count the rows that have secrets.")
@with_session("read")
async def rotate(session: CliSession, is_dry: bool) -> None:
    """Seal all secrets again by the first key of GRNS_KEYS_FILE, while everything runs.

    It is safe to stop and to repeat. Events that were written before keep the old key until retention
    deletes them.
    """
    with progress() as show_progress:
        total = (await count_sealed(session.database)).total
        if is_dry:
            failure.note(f"{total:,} rows have secrets; grns admin secret keys counts them by key")
            return
        changed = await rotate_secrets(
            session.database, lambda done: show_progress(done, total, "sealed again")
        )
    failure.note(f"{changed:,} rows are sealed by the first key now; no other has one by another key")
