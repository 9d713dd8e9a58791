"""Fields on the wire that no schema declares: users are told of a message by its schema alone."""

from __future__ import annotations

from collections.abc import Iterator

import asyncpg

from grns.model import events

_FIELDS = """
    select e.kind, f.name from grns.events e cross join lateral json_object_keys(e.payload) as f (name)
    group by e.kind, f.name
"""


async def undeclared(connection: asyncpg.Connection) -> Iterator[str]:
    """Return what the log has and the published schemas have not."""
    rows = await connection.fetch(_FIELDS)
    return (
        f"{row['kind']} has {row['name']}"
        for row in rows
        if (model := events.model_of(row["kind"])).model_config.get("extra") != "allow"
        and row["name"] not in {field.alias or name for name, field in model.model_fields.items()}
    )
