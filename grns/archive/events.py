"""Archives of the event log: a partition, part by part, before it is dropped."""

from __future__ import annotations

import re

from grns.archive.archive import EVENTS, ArchivedRow, in_thread, names, write
from grns.errors import InvalidInputError
from grns.postgres.database import Database
from grns.postgres.statements import compose
from grns.runtime.place import FilePlace

_PART_ROWS = 20_000
_PART_BYTES = 32 * 1024**2
_SPAN = re.compile(r"/([0-9]{19})~([0-9]{19})~([0-9a-f]{8}-[0-9a-f]{8})$")
_PARTITION = re.compile(r"events_([0-9]{19})")


async def archive_part(database: Database, place: FilePlace, partition: str, rows: int = _PART_ROWS) -> bool:
    """Archive the next part of a partition that was taken off the log; False once all of it is archived.

    What is archived is known by the names of archives: from where to where they go, and the ids of the
    messages there, so that the log of another database is not taken for this one's. Nothing is written to
    such a partition any more: a part that another janitor writes, too, has the same rows.
    """
    match = _PARTITION.fullmatch(partition)
    if match is None:
        raise InvalidInputError("bad_partition", f"{partition} is not a partition of the log")
    for statement in ("read_detached", "find_archived"):
        compose(f"{statement}_{partition}", statement, partition=partition)
    folder = f"{EVENTS}/{match[1]}"
    spans = [span.groups() for name in await names(place, folder) if (span := _SPAN.search(name))]
    archived = await database.run(
        f"find_archived_{partition}",
        [int(first) for first, _, _ in spans],
        [int(last) for _, last, _ in spans],
        [mark for *_, mark in spans],
    )
    parts = {row["first"]: (row["last"], row["next"]) for row in archived}
    after, first = 0, archived[0]["start"]
    while first in parts:
        after, first = parts.pop(first)
    found = await database.run(f"read_detached_{partition}", after, rows, _PART_BYTES)
    if not found:
        await in_thread(place.sync, folder)  # what is seen there may not be on disk yet
        return False
    lines = [ArchivedRow(row["workspace"], f"{row['seq']:019}", row["at"], row["document"]) for row in found]
    mark = f"{found[0]['mark']}-{found[-1]['mark']}"
    await write(place, EVENTS, lines, f"{folder}/{lines[0].key}~{lines[-1].key}~{mark}")
    return True
