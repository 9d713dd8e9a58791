"""Archives of the event log: a partition, part by part, before it is dropped."""

from __future__ import annotations

import re

from grns.archive.archive import EVENTS, ArchivedRow, names, span_of, write
from grns.archive.place import ArchivePlace
from grns.errors import InvalidInputError
from grns.postgres.database import Database
from grns.postgres.statements import compose

_PART_ROWS = 20_000
_PART_BYTES = 32 * 1024**2
_PARTITION = re.compile(r"events_([0-9]{19})")


async def archive_part(
    database: Database, place: ArchivePlace, partition: str, rows: int = _PART_ROWS
) -> bool:
    """Archive the next part of a partition that was taken off the log; False once all of it is archived.

    Where it went on from is what the names of archives say. Nothing is written to such a partition any more,
    so a part that is written twice, by another janitor or after a crash, is the same file.
    """
    match = _PARTITION.fullmatch(partition)
    if match is None:
        raise InvalidInputError("bad_partition", f"{partition} is not a partition of the log")
    statement = f"read_{partition}"
    compose(statement, "read_detached", partition=partition)
    after = await _archived_up_to(place, match[1])
    found = await database.run(statement, after, rows, _PART_BYTES)
    if not found:
        return False
    lines = [ArchivedRow(row["workspace"], f"{row['seq']:019}", row["at"], row["document"]) for row in found]
    name = f"{EVENTS}/{max(line.at for line in lines):%Y-%m-%d}/{lines[0].key}~{lines[-1].key}~{match[1]}"
    await write(place, name, EVENTS, lines)
    return True


async def _archived_up_to(place: ArchivePlace, lower: str) -> int:
    """Return up to which number a partition is archived."""
    spans = [span_of(name) for name in await names(place, EVENTS)]
    return max((int(last) for _, last, partition in spans if partition == lower), default=int(lower) - 1)
