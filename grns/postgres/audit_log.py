"""Write an event about a change whose own statement does not write one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from pydantic import ValidationError

from grns.errors import InvalidInputError
from grns.model import events as payloads
from grns.model.envelope import first_problem
from grns.model.json import dumps
from grns.postgres.database import Connection, Database, Session, run


async def note(
    on: Connection | Database | Session,
    *,
    workspace: str,
    kind: str,
    actor: str | None,
    payload: Mapping[str, Any],
    task_id: str | None = None,
) -> UUID:
    """Write one event and return its message id; in the transaction of the change if `on` is its connection.

    `actor` made the change: `key:<id>`, `cli:<user>@<host>`, or None for grns itself. It becomes part of the
    payload. Raises `InvalidInputError` if the payload does not fit the model of the kind.
    """
    text = _text(kind, payload, actor)
    if isinstance(on, Database | Session):
        rows = await on.run("note_changes", workspace, [kind], actor, [text], task_id)
    else:
        rows = await run(on, "note_changes", workspace, [kind], actor, [text], task_id)
    message_id: UUID = rows[0]["message_id"]
    return message_id


async def note_many(
    connection: Connection,
    changes: Sequence[tuple[str, Mapping[str, Any]]],
    *,
    workspace: str,
    actor: str | None,
) -> None:
    """Write events, each of a kind and its payload, in their order: see `note`."""
    kinds = [kind for kind, _ in changes]
    texts = [_text(kind, payload, actor) for kind, payload in changes]
    await run(connection, "note_changes", workspace, kinds, actor, texts, None)


def _text(kind: str, payload: Mapping[str, Any], actor: str | None) -> str:
    try:
        event = payloads.model_of(kind).model_validate({**payload, "actor": actor})
    except ValidationError as error:
        raise InvalidInputError("bad_payload", f"{kind}: payload.{first_problem(error)}") from error
    return dumps(event.model_dump(mode="json", by_alias=True))
