"""Secrets of payloads: which values are secret, sealed before they are stored, shown to who may see them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from grns.errors import NotFoundError
from grns.model.json import ANY_SIZE, dumps, loads_stored
from grns.model.secret import Path, check_clear, read_paths
from grns.postgres import audit_log
from grns.postgres.database import Database, Session

if TYPE_CHECKING:
    from grns.tasks.submit import Prepared

STALE_SECONDS = 10.0
"""For so long a process goes by the declarations that it has read."""

Declared = Mapping[str, tuple[Path, ...]]


async def declared_paths(database: Database | Session, workspace: str) -> Declared:
    """Return the paths of secrets by task type, as the workers of a workspace have declared them."""
    known, now = database.vault.known_paths, time.monotonic()
    read_at, declared = known.get(workspace, (-STALE_SECONDS, {}))
    if now - read_at >= STALE_SECONDS:
        rows = await database.run("read_secret_paths", workspace)
        gathered: dict[str, tuple[Path, ...]] = {}
        for row in rows:
            gathered[row["task_type"]] = gathered.get(row["task_type"], ()) + read_paths(row["secret_paths"])
        declared = gathered
        known[workspace] = now, declared
    return declared


async def seal_payloads(database: Database | Session, batch: Iterable[Prepared]) -> None:
    """Seal the secrets of tasks that are about to be created; what is sealed stays.

    Raises:
        InvalidInputError: `sealed_value` where a payload plays a stored secret; `no_keys` where there is a
            secret, and no key here; `masked_value`.
    """
    declared: dict[str, Declared] = {}  # one look for each workspace, whatever the size of the batch
    for one in batch:
        if one.is_sealed:
            continue
        workspace, paths = one.submission.workspace, one.secret
        if paths is None:
            if workspace not in declared:
                declared[workspace] = await declared_paths(database, workspace)
            paths = declared[workspace].get(one.submission.task_type, ())
        if paths:
            one.payload = _hidden(database, one.payload, workspace, paths)
        one.is_sealed = True


async def sealed_payload(
    database: Database | Session,
    text: str,
    workspace: str,
    task_type: str,
    paths: tuple[Path, ...] | None = None,
) -> str:
    """Return the text of a payload with its secrets sealed: those at the paths, or that its type declares."""
    if paths is None:
        paths = (await declared_paths(database, workspace)).get(task_type, ())
    return _hidden(database, text, workspace, paths) if paths else text


def _hidden(database: Database | Session, text: str, workspace: str, paths: tuple[Path, ...]) -> str:
    return dumps(database.vault.hide(loads_stored(text), paths, workspace), ANY_SIZE)


async def sealed_patch(database: Database | Session, patch: Any, workspace: str) -> Any:
    """Return a patch of tasks of any types with what is secret in one of them sealed."""
    check_clear(dumps(patch))
    declared = await declared_paths(database, workspace)
    paths = tuple({path for paths in declared.values() for path in paths})
    return database.vault.hide(patch, paths, workspace) if paths else patch


async def reveal(
    database: Database | Session, task_id: str, *, workspace: str, actor: str, reason: str | None = None
) -> Any:
    """Return the payload of a task with its secrets, and write to the log that it was shown.

    Raises:
        NotFoundError: the workspace has no task with this id.
        SealedError: its secrets cannot be opened here.
    """
    rows = await database.run("read_payloads", [task_id], workspace)
    if not rows:
        raise NotFoundError(f"workspace {workspace} has no task {task_id}")
    payload = database.vault.open(loads_stored(rows[0]["payload"]), workspace)
    await audit_log.note(
        database, workspace=workspace, kind="evt.secret.revealed", actor=actor, task_id=task_id,
        payload={"task_id": task_id, "reason": reason},
    )  # fmt: skip
    return payload
