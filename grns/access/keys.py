"""API keys: made, listed and revoked, each with its event; and who it is that shows one."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from grns.access import principals as access
from grns.access.principals import Principal, Scope
from grns.errors import ConflictError, InvalidInputError, NotFoundError, UnauthenticatedError
from grns.model import api_key as key
from grns.model import subjects
from grns.model.api_key import ApiKey
from grns.model.envelope import rfc3339
from grns.postgres import audit_log as change
from grns.postgres.database import Connection, Database, Row, Session, build, run
from grns.postgres.paging import Page, page_of

# Keys of one workspace that are neither revoked nor expired.
MOST_KEYS = 1000

# What the secret of a key that does not exist is held against: refusing it takes as long.
_NO_SECRET = bytes(32)


@dataclass(frozen=True, slots=True)
class KeyInfo:
    """An API key without its secret. A null workspace, null pools and null agents mean all."""

    id: str
    workspace: str | None
    name: str
    scopes: list[Scope]
    pools: list[str] | None
    agents: list[str] | None
    created_at: datetime
    created_by: str | None
    expires_at: datetime | None
    revoked_at: datetime | None
    revoked_by: str | None
    last_used_at: datetime | None
    state: Literal["valid", "expired", "revoked"]


async def create_key(
    database: Database | Session,
    *,
    workspace: str | None,
    name: str,
    scopes: Collection[str],
    expires_seconds: float | None = None,
    pools: Collection[str] | None = None,
    agents: Collection[str] | None = None,
    actor: str | None,
) -> tuple[ApiKey, KeyInfo]:
    """Create a key; return it, which can be shown now and never again, and what is known of it.

    `workspace` None is all of them; without `expires_seconds` it is good until it is revoked. `pools` are the
    agent types that it may claim tasks of and finish them, `agents` the agents that it may be; None: all.
    Raises `InvalidInputError`,
    `NotFoundError` where there is no such workspace, `ConflictError` if the workspace has `MOST_KEYS` keys.
    """
    key.check(name, expires_seconds)
    wanted = access.scopes(scopes)
    in_order = [scope for scope in access.SCOPES if scope in wanted]
    its_pools = None if pools is None else access.pools(pools)
    its_agents = None if agents is None else access.agents(agents)
    made = key.make(time.time_ns() // 1_000_000)
    async with database.transaction() as connection:
        if workspace is not None:
            live = await run(connection, "count_keys", workspace, MOST_KEYS)
            if live[0]["keys"] >= MOST_KEYS:  # some more, if they are made at the same moment
                raise ConflictError(
                    f"workspace {workspace} has {MOST_KEYS} keys, the maximum: revoke some first"
                )
        rows = await run(
            connection, "create_key", made.id, workspace, name, key.digest(made.secret), in_order, actor,
            expires_seconds, its_pools, its_agents,
        )  # fmt: skip
        if not rows:
            raise NotFoundError(f"there is no workspace {workspace}")
        info = build(KeyInfo, rows[0])
        payload = {
            "key_workspace": workspace,
            "scopes": in_order,
            "pools": its_pools,
            "agents": its_agents,
            "expires_at": info.expires_at and rfc3339(info.expires_at),
        }
        await _note(connection, "evt.key.created", info, actor, payload)
    return made, info


async def create_first_key(database: Database | Session, **fields: Any) -> tuple[ApiKey, KeyInfo]:
    """Make a key as `create_key` does; `UnauthenticatedError` if there is one already."""
    async with database.transaction() as connection:
        await run(connection, "lock_keys")  # of several that look at once, one finds none
        if (await run(connection, "has_keys"))[0]["has_keys"]:
            raise UnauthenticatedError("there is a key already: the bootstrap token is worthless")
        return await create_key(Session(connection), **fields)


async def list_keys(
    database: Database | Session, *, workspace: str | None, limit: int, after: str | None = None
) -> Page[KeyInfo]:
    """Return a workspace's keys, or with None all there are, the latest first; the last id is the cursor."""
    found = await database.fetch(KeyInfo, "list_keys", workspace, after, limit + 1)
    return page_of(found, limit, lambda key: key.id)


async def read_key(database: Database | Session, key_id: str, *, workspace: str | None) -> KeyInfo:
    """Return one key of a workspace, or with None of any; raises `NotFoundError` if it does not exist."""
    found = await database.fetch(KeyInfo, "read_key", key_id, workspace)
    if not found:
        raise NotFoundError(f"there is no key {key_id}")
    return found[0]


async def revoke_key(
    database: Database | Session, key_id: str, *, workspace: str | None, actor: str | None
) -> bool:
    """End a key of a workspace, or with None of any, for good; False where it had ended.

    Raises `NotFoundError`.
    """
    async with database.transaction() as connection:
        info = await read_key(Session(connection), key_id, workspace=workspace)
        is_new = bool(await run(connection, "revoke_key", key_id, workspace, actor))
        if is_new:
            await _note(connection, "evt.key.revoked", info, actor, {})
    return is_new


async def has_keys(database: Database) -> bool:
    """Return whether a key was ever created: from then on each request needs one."""
    found: bool = (await database.run("has_keys"))[0]["has_keys"]
    return found


async def authenticate(database: Database, text: str) -> Principal:
    """Return who it is that shows a key; `UnauthenticatedError`, without saying why, where it is not good
    (any more)."""
    try:
        shown = key.parse(text)
    except InvalidInputError as error:
        raise ended_key() from error
    rows = await database.run("check_key", shown.id, None)
    is_right = key.matches(shown.secret, rows[0]["secret_sha256"] if rows else _NO_SECRET)
    if not (rows and is_right and rows[0]["state"] == "valid"):
        raise ended_key()
    return await _holder(database, shown.id, rows[0])


async def recognise(database: Database, key_id: str) -> Principal:
    """Return the principal of a key that was shown before; `UnauthenticatedError` if it is not valid any
    more."""
    return (await resume(database, key_id, None))[0]


async def resume(database: Database, key_id: str, nonce: str | None) -> tuple[Principal, bytes]:
    """Return whose session of the dashboard it is, and the digest of its key.

    `nonce` is the session's. Raises `UnauthenticatedError` if the key is not good any more, or the session
    was ended.
    """
    rows = await database.run("check_key", key_id, nonce)
    if not (rows and rows[0]["state"] == "valid") or rows[0]["is_ended"]:
        raise ended_key()
    return await _holder(database, key_id, rows[0]), rows[0]["secret_sha256"]


async def end_session(database: Database, nonce: str, expires_at: int) -> None:
    """End a session of the dashboard before its time, which is given in seconds since 1970."""
    await database.run("end_session", nonce, expires_at)


async def good_keys(database: Database, key_ids: Collection[str]) -> set[str]:
    """Return those of the keys that are neither revoked nor expired."""
    return {row["id"] for row in await database.run("read_good_keys", list(key_ids))}


async def _holder(database: Database, key_id: str, row: Row) -> Principal:
    if row["is_note_due"]:
        await database.run("note_key_use", key_id)
    return access.holder(key_id, row["workspace"], row["scopes"], row["pools"], row["agents"])


def ended_key() -> UnauthenticatedError:
    """Return what a key that is not good is answered with."""
    return UnauthenticatedError("this key is not known, has expired, or was revoked")


async def _note(
    connection: Connection, kind: str, info: KeyInfo, actor: str | None, more: dict[str, Any]
) -> None:
    """Log what became of a key; those of all workspaces belong to no workspace's events."""
    await change.note(
        connection,
        workspace=info.workspace or subjects.INSTALLATION,
        kind=kind,
        actor=actor,
        payload={"key_id": info.id, "name": info.name, **more},
    )
