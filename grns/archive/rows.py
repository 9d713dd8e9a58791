"""Archives of rows of one table, such as messages: a line is a row."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from grns.archive.archive import Archive, ArchivedRow, new_name, write
from grns.archive.place import ArchivePlace
from grns.model.envelope import rfc3339
from grns.postgres.database import Row


async def write_rows(place: ArchivePlace, table: str, rows: Sequence[Row]) -> Archive | None:
    """Write rows that are being deleted to an archive; None if there are none.

    Call it in the transaction that deletes: what is not written is not deleted then.

    Args:
        place: where.
        table: whose rows they are.
        rows: each with `workspace`, its time `at`, and itself as JSON, `document`.
    """
    if not rows:
        return None
    lines = [ArchivedRow(row["workspace"], rfc3339(row["at"]), row["at"], row["document"]) for row in rows]
    lines.sort(key=lambda line: line.at)
    name = new_name(table, f"{lines[0].at:%Y%m%dT%H%M%S}", f"{lines[-1].at:%Y%m%dT%H%M%S}", datetime.now(UTC))
    return await write(place, name, table, lines)
