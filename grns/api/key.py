"""Keys and workspaces: who may do what, and where."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated

from fastapi import Path, Query
from pydantic import Field
from starlette.responses import Response

from grns.access import keys as store
from grns.access import workspaces
from grns.access.keys import KeyInfo
from grns.access.principals import BOOTSTRAP, MOST_POOLS, SCOPES, Scope
from grns.access.workspaces import Workspace
from grns.api.access import Admin, AdminOfAll, FirstAdmin, KeyHolder, Reader, RequestContext
from grns.api.answer import Answer
from grns.api.page import Cursor, Limit, PageOf, answer, listed, name_in
from grns.api.request import Body, strict_body
from grns.api.route import PREFIX, router
from grns.errors import ConflictError, PermissionDeniedError
from grns.model.submission import Token

routes = router("keys and workspaces")

KeyId = Annotated[str, Path(pattern="^[0-9a-f]{20}$", description="The key's id.")]
Everywhere = Annotated[bool, Query(description="Of all workspaces; for keys of all of them.")]


@dataclass(frozen=True, slots=True)
class NewKey(KeyInfo):
    """A key that was made just now, with its secret: it is shown this once."""

    key: str


class CreateKeyRequest(Body):
    """A key to create, for the workspace of the request or for all.

    With `pools`, it may only work for these pools; with `agents`, only be these agents.
    """

    name: Annotated[str, Field(min_length=1, max_length=100)]
    scopes: Annotated[list[Scope], Field(min_length=1)]
    pools: Annotated[list[Token], Field(min_length=1, max_length=MOST_POOLS)] | None = None
    agents: Annotated[list[Token], Field(min_length=1, max_length=MOST_POOLS)] | None = None
    expires_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False, strict=True)] | None = None
    all_workspaces: Annotated[bool, Field(strict=True)] = False


@dataclass(frozen=True, slots=True)
class OwnKey:
    """What the key of a request may do, in which workspace the request is, and to what the key is bound."""

    key_id: str | None
    workspace: str
    all_workspaces: bool
    scopes: list[Scope]
    pools: list[str] | None
    agents: list[str] | None


class CreateWorkspaceRequest(Body):
    """A workspace to create."""

    workspace: Token


@routes.get("/me", response_model=OwnKey)
async def read_own_key(request_context: KeyHolder) -> Response:
    """Return what the key of this request may do."""
    who = request_context.principal
    may = [scope for scope in SCOPES if who.may(scope, request_context.workspace)]
    bound = (None if some is None else sorted(some) for some in (who.pools, who.agents))
    return Answer(OwnKey(who.key_id, request_context.workspace, request_context.is_everywhere, may, *bound))


@routes.post("/keys", response_model=NewKey, status_code=201)
async def create_key(
    request_context: FirstAdmin,
    body: Annotated[CreateKeyRequest, strict_body(CreateKeyRequest, code="bad_key_order")],
) -> Response:
    """Create a key.

    The answer shows its secret once. While no key exists, the bootstrap token that the API printed creates
    the first one, with the scope `admin` for all workspaces.
    """
    workspace = _of(request_context, all_workspaces=body.all_workspaces)
    who = request_context.principal
    for kind, own, wanted in (("pools", who.pools, body.pools), ("agents", who.agents, body.agents)):
        if own is not None and not (wanted and own.issuperset(wanted)):
            raise PermissionDeniedError(
                f"a key that is bound to {kind} makes keys for these alone: {', '.join(sorted(own))}"
            )
    create = store.create_key
    if request_context.principal is BOOTSTRAP:
        if "admin" not in body.scopes or workspace is not None or body.pools or body.agents:
            raise PermissionDeniedError("the first key has the scope admin and is of all workspaces")
        create = store.create_first_key
    async with request_context.writing() as database:
        made, info = await create(
            database,
            workspace=workspace,
            name=body.name,
            scopes=body.scopes,
            expires_seconds=body.expires_seconds,
            pools=body.pools,
            agents=body.agents,
            actor=request_context.actor,
        )
    location = {"Location": f"{PREFIX}/keys/{made.id}"}
    return Answer(NewKey(**asdict(info), key=made.reveal()), status_code=201, headers=location)


@routes.get("/keys", response_model=PageOf[KeyInfo])
async def list_keys(
    request_context: Admin, all_workspaces: Everywhere = False, limit: Limit = 50, cursor: Cursor = None
) -> Response:
    """List the workspace's keys, the latest first."""
    workspace = _of(request_context, all_workspaces=all_workspaces)
    async with request_context.reading() as database:
        return answer(
            await store.list_keys(database, workspace=workspace, limit=limit, after=name_in(cursor))
        )


@routes.get("/keys/{key_id}", response_model=KeyInfo)
async def read_key(request_context: Admin, key_id: KeyId) -> Response:
    """Return a key without its secret."""
    async with request_context.reading() as database:
        return Answer(await store.read_key(database, key_id, workspace=request_context.principal.workspace))


@routes.post("/keys/{key_id}/revoke", response_model=KeyInfo)
async def revoke_key(request_context: Admin, key_id: KeyId) -> Response:
    """Revoke a key."""
    workspace = request_context.principal.workspace
    async with request_context.writing() as database:
        if not await store.revoke_key(database, key_id, workspace=workspace, actor=request_context.actor):
            raise ConflictError(f"key {key_id} was revoked before")
        return Answer(await store.read_key(database, key_id, workspace=workspace))


@routes.post("/workspaces", response_model=CreateWorkspaceRequest, status_code=201)
async def create_workspace(
    request_context: AdminOfAll,
    body: Annotated[CreateWorkspaceRequest, strict_body(CreateWorkspaceRequest, code="bad_workspace")],
) -> Response:
    """Create a workspace, so that keys can be bound to it."""
    async with request_context.writing() as database:
        await workspaces.create_workspace(database, body.workspace, actor=request_context.actor)
    return Answer({"workspace": body.workspace}, status_code=201)


@routes.get("/workspaces", response_model=PageOf[Workspace])
async def list_workspaces(request_context: Reader, limit: Limit = 50, cursor: Cursor = None) -> Response:
    """List the workspaces. A key that is bound to one sees only that one."""
    async with request_context.reading() as database:
        if request_context.is_everywhere:
            return answer(await workspaces.list_workspaces(database, limit=limit, after=name_in(cursor)))
        found = await workspaces.read_workspaces(database, request_context.workspace)
    return listed(found)


def _of(request_context: RequestContext, *, all_workspaces: bool) -> str | None:
    """Return whose keys are meant: None is all workspaces."""
    if not all_workspaces:
        return request_context.workspace
    if not request_context.is_everywhere:
        raise PermissionDeniedError("a key of all workspaces is needed")
    return None
