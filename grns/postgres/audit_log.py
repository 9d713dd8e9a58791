"""Notes in the log of what somebody has changed, where no statement of the change itself writes them."""

from __future__ import annotations

from collections.abc import Mapping
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
    """Log one event, in the transaction of the change where `on` is its connection; returns its message id.

    `actor` is who did it, as `key:<id>` or `cli:<user>@<host>`; None is grns itself. It becomes part of the
    payload, which has to fit the kind's model (`InvalidInputError`).
    """
    try:
        said = payloads.model_of(kind).model_validate({**payload, "actor": actor})
    except ValidationError as error:
        raise InvalidInputError("bad_payload", f"{kind}: payload.{first_problem(error)}") from error
    text = dumps(said.model_dump(mode="json", by_alias=True))
    if isinstance(on, Database | Session):
        rows = await on.run("note_change", workspace, kind, actor, text, task_id)
    else:
        rows = await run(on, "note_change", workspace, kind, actor, text, task_id)
    message_id: UUID = rows[0]["message_id"]
    return message_id
