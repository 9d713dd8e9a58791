"""`grns blob …`."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import BinaryIO

import click

from grns.cli import failure
from grns.cli.group import Group
from grns.cli.output import Column, Output, output_option, text
from grns.cli.progress import progress
from grns.cli.session import CliSession, paged, with_session
from grns.model.blob import BlobState, digest_of
from grns.model.text import sized
from grns.postgres.paging import Page

_COLUMNS = (
    Column("ID", "id"),
    Column("SIZE", lambda one: sized(one.size)),
    Column("TYPE", lambda one: one.media_type or "", may_shrink=True),
    Column("REFERENCES", "references"),
    Column("PUT", "used_at", is_age=True),
    Column("CREATED", "created_at", is_age=True, spare=1),
)


@click.group(cls=Group)
def blob() -> None:
    """Keep files that payloads and results refer to."""


@blob.command(examples=["grns blob put report.json --type application/json", "tar c src | grns blob put -"])
@click.argument("file", metavar="FILE", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("--type", "media_type", metavar="TYPE", help="Media type, such as application/pdf.")
@output_option
@with_session("read")
async def put(session: CliSession, out: Output, file: str, media_type: str | None) -> None:
    """Keep the bytes of FILE, or of standard input (-), and print the reference to them.

    Put the reference into a payload. A blob that nothing refers to is deleted after a day.
    """
    content = sys.stdin.buffer.read() if file == "-" else Path(file)
    kept = await session.client.blobs.put(content, media_type=media_type)
    out.record(kept, lambda: text(kept.id))


@blob.command(examples=["grns blob get BLOB_ID report.pdf", "grns blob get BLOB_ID > report.pdf"])
@click.argument("id_", metavar="ID")
@click.argument("file", metavar="[FILE]", type=click.Path(dir_okay=False, path_type=Path), required=False)
@with_session("read", missing="grns blob list")
async def get(session: CliSession, id_: str, file: Path | None) -> None:
    """Write the bytes of a blob to FILE, once all of them have come, or to standard output."""
    size = (await session.client.blobs.find(id_)).size
    if file is None:
        await _write(session, id_, size, sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return
    beside = file.with_name(f"{file.name}.part")
    try:
        with beside.open("wb") as target:
            await _write(session, id_, size, target)
        beside.replace(file)
    finally:
        beside.unlink(missing_ok=True)


async def _write(session: CliSession, id_: str, size: int, target: BinaryIO) -> None:
    digest, done = hashlib.sha256(), 0
    with progress(has_lines=False) as show_progress:
        async for part in session.client.blobs.read(id_):
            target.write(part)
            digest.update(part)
            done += len(part)
            show_progress(done, size, sized(done))
    if digest.hexdigest() != digest_of(id_):
        failure.note("the bytes do not have this sha256: the database, or the blob store, is damaged")
        raise click.exceptions.Exit(1)


@blob.command("list", examples=["grns blob list", "grns blob list -o json"])
@paged(_COLUMNS, nothing="no blobs")
async def list_(session: CliSession, *, limit: int, after: str | None) -> Page[BlobState]:
    """List blobs, the latest first, each with how many tasks, messages and schedules refer to it."""
    return await session.client.blobs.list(limit=limit, after=after)
