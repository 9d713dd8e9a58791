"""Workspaces that were created. Tasks may be submitted into any other one, too."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from grns.errors import ConflictError, InvalidInputError
from grns.model import subjects
from grns.postgres import audit_log as change
from grns.postgres.database import Database, Session, run
from grns.postgres.paging import Page, page_of


@dataclass(frozen=True, slots=True)
class Workspace:
    """A workspace."""

    workspace: str
    created_at: datetime
    created_by: str | None


async def create_workspace(database: Database | Session, workspace: str, *, actor: str | None) -> None:
    """Make a workspace known; `ConflictError` where it is."""
    subjects.token(workspace, name="workspace")
    if workspace in subjects.RESERVED_WORKSPACES:
        raise InvalidInputError("bad_name", f"workspace {workspace!r} is reserved")
    async with database.transaction() as connection:
        if not await run(connection, "create_workspace", workspace, actor):
            raise ConflictError(f"there is a workspace {workspace} already")
        await change.note(
            connection,
            workspace=workspace,
            kind="evt.workspace.created",
            actor=actor,
            payload={"workspace": workspace},
        )


async def list_workspaces(
    database: Database | Session, *, limit: int, after: str | None = None
) -> Page[Workspace]:
    """Return workspaces by their names; the cursor is the last one's."""
    found = await database.fetch(Workspace, "list_workspaces", after, limit + 1)
    return page_of(found, limit, lambda one: one.workspace)


async def read_workspaces(database: Database | Session, workspace: str) -> list[Workspace]:
    """Return one workspace, nothing if it was not created."""
    return await database.fetch(Workspace, "read_workspaces", workspace)
