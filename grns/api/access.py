"""Who may come in, and where to: keys, scopes and workspaces. What is of another workspace does not exist."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any, get_type_hints

from fastapi import Depends, Header, Query, Request

from grns.access.isolation import as_tenant
from grns.access.keys import authenticate, has_keys
from grns.access.principals import BOOTSTRAP, Principal, Scope
from grns.api.context import ApiContext, QueryLimiter
from grns.client.client import Client
from grns.dead_letters.triage import Triage
from grns.errors import InvalidInputError, NotFoundError, PermissionDeniedError, UnauthenticatedError
from grns.model import subjects
from grns.model.envelope import read_traceparent
from grns.postgres.database import Database, Session
from grns.tasks.pause_pools import PoolPauses

_KEYS = "/api/v1/keys"
# The principal that the dashboard has authenticated. No client can send it.
PRINCIPAL = "grns.principal"


@dataclass(frozen=True)
class RequestContext:
    """An authorized request: its principal and its workspace."""

    context: ApiContext
    principal: Principal
    workspace: str
    traceparent: str | None = None  # the client's header, which may be anything

    @property
    def trace_id(self) -> str | None:
        """The client's trace: tasks that it submits belong there, unless they name another."""
        found = None if self.traceparent is None else read_traceparent(self.traceparent)
        return found[0] if found else self.context.spans.current_trace()

    @property
    def actor(self) -> str:
        """Who asks, as the log names them."""
        return self.principal.actor

    @property
    def is_everywhere(self) -> bool:
        """Say whether they are bound to no workspace."""
        return self.principal.workspace is None

    def check_pool(self, agent_type: str) -> None:
        """Raise `PermissionDeniedError` if their key is bound to other pools."""
        if not self.principal.may_work_for(agent_type):
            raise PermissionDeniedError(f"this key does not work for the pool {agent_type}")

    def check_agent(self, name: str) -> None:
        """Raise NotFoundError if their key is bound to other agents: these do not exist for it."""
        if not self.principal.may_be(name):
            raise NotFoundError(f"there is no agent {name[:64]} in workspace {self.workspace}")

    def enter(self, workspace: str) -> str:
        """Return a workspace that they have named; `NotFoundError` where it is not theirs."""
        if not self.principal.reaches(workspace):
            raise NotFoundError(f"there is no workspace {workspace}")
        return workspace

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Database | Session]:
        """Lend what to ask the database with: for whom is bound to a workspace, confined to it."""
        async with self._confined(self.context.turns) as database:
            yield database

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[Database | Session]:
        """Lend the same for changes: once they have committed, the relay hears of them."""
        async with self.reading() as database:
            yield database
        await self.context.transport.nudge(subjects.RELAY_NUDGE)

    @asynccontextmanager
    async def reading_attempt(self) -> AsyncIterator[Database | Session]:
        """Lend the same as `reading` to claimed tasks, which wait for no request of another kind."""
        async with self._confined(self.context.attempt_turns) as database:
            yield database

    @asynccontextmanager
    async def writing_attempt(self) -> AsyncIterator[Database | Session]:
        """Lend the same as `writing` for renewals, steps and outcomes, which wait only for one another."""
        async with self.reading_attempt() as database:
            yield database
        await self.context.transport.nudge(subjects.RELAY_NUDGE)

    @asynccontextmanager
    async def _confined(self, turns: QueryLimiter) -> AsyncIterator[Database | Session]:
        if self.is_everywhere:
            yield self.context.database
            return
        async with turns.of(self.workspace):
            if await self.context.isolation.is_there():
                async with as_tenant(self.context.database, self.workspace) as session:
                    yield session
            else:
                yield self.context.database

    def client(self, database: Database | Session) -> Client:
        """Return a client for them."""
        context = self.context
        return Client(
            database=database,
            handlers_database=context.database,
            transport=context.transport,
            workspace=self.workspace,
            payload_limits=context.payload_limits,
            envelope_limits=context.envelope_limits,
            batch_limit=context.batch_limit,
            actor=self.actor,
            emit=context.emit,
            spans=context.spans,
        )

    def triage(self, database: Database | Session) -> Triage:
        """Return triage for them."""
        return Triage(
            database=database,
            transport=self.context.transport,
            workspace=self.workspace,
            payload_limits=self.context.payload_limits,
            envelope_limits=self.context.envelope_limits,
        )

    def pauses(self, database: Database | Session) -> PoolPauses:
        """Return what pauses and resumes the pools of their workspace."""
        return PoolPauses(database=database, transport=self.context.transport, workspace=self.workspace)


# By the dependency that asks for one of them.
_SCOPES: dict[object, tuple[Scope, ...]] = {}


def requires(*scopes: Scope, everywhere: bool = False, may_be_first: bool = False) -> Any:
    """Return the dependency that requires one of some scopes; without any, a key is enough.

    With `everywhere`, it must be a key of all workspaces; with `may_be_first`, the bootstrap token will do.
    """

    async def request_context(
        request: Request,
        workspace: Annotated[
            str | None, Query(description="The workspace, for keys of all of them.", max_length=64)
        ] = None,
        named: Annotated[
            str | None, Header(alias="Grns-Workspace", description="The same, as a header.", max_length=64)
        ] = None,
    ) -> RequestContext:
        context: ApiContext = request.app.state.context
        principal = await _principal(context, request, may_be_first=may_be_first)
        chosen = principal.workspace or context.workspace
        for said in (workspace, named):
            if said is not None:
                chosen = subjects.token(said, name="workspace")
        if workspace is not None and named is not None and workspace != named:
            raise InvalidInputError(
                "bad_workspace", "the query names one workspace, and Grns-Workspace another"
            )
        found = RequestContext(context, principal, chosen, request.headers.get("traceparent"))
        found.enter(chosen)
        if scopes and not any(principal.may(scope, chosen) for scope in scopes):
            raise PermissionDeniedError(f"the scope {' or '.join(scopes)} is needed")
        if everywhere and not found.is_everywhere:
            raise PermissionDeniedError("a key of all workspaces is needed")
        return found

    if scopes:
        _SCOPES[request_context] = scopes
    return Depends(request_context)


KeyHolder = Annotated[RequestContext, requires()]
Reader = Annotated[RequestContext, requires("read")]
Submitter = Annotated[RequestContext, requires("submit")]
Operator = Annotated[RequestContext, requires("operate")]
Agent = Annotated[RequestContext, requires("work")]
BlobReader = Annotated[RequestContext, requires("read", "work")]
BlobWriter = Annotated[RequestContext, requires("submit", "work")]
Answerer = Annotated[RequestContext, requires("answer")]
Revealer = Annotated[RequestContext, requires("reveal")]
Admin = Annotated[RequestContext, requires("admin")]
FirstAdmin = Annotated[RequestContext, requires("admin", may_be_first=True)]
AdminOfAll = Annotated[RequestContext, requires("admin", everywhere=True)]
ReaderOfAll = Annotated[RequestContext, requires("read", everywhere=True)]


def scopes_of(endpoint: Callable[..., Any]) -> tuple[Scope, ...]:
    """Return the scopes, one of which an endpoint requires, as one of its parameters declares."""
    for hint in get_type_hints(endpoint, include_extras=True).values():
        for declared in getattr(hint, "__metadata__", ()):
            if scopes := _SCOPES.get(getattr(declared, "dependency", None)):
                return scopes
    return ()


async def _principal(context: ApiContext, request: Request, *, may_be_first: bool) -> Principal:
    known: Principal | None = request.scope.get(PRINCIPAL)
    if known is not None:
        return known
    shown = request.headers.get("authorization")
    if shown is None:
        raise UnauthenticatedError(
            "show a key, as `Authorization: Bearer grns_…`; `grns admin key create` makes one"
        )
    kind, _, text = shown.partition(" ")
    if kind.lower() != "bearer":
        raise UnauthenticatedError("a key is shown as `Authorization: Bearer grns_…`")
    text = text.strip()
    if await is_bootstrap(context, text):
        if not may_be_first:
            raise PermissionDeniedError(
                f"the bootstrap token creates the first key and does nothing else: POST {_KEYS}"
            )
        return BOOTSTRAP
    return await authenticate(context.database, text)


async def is_bootstrap(context: ApiContext, text: str) -> bool:
    """Say whether the text is the bootstrap token of this process, and there is no key yet."""
    invitation = context.invitation
    return invitation.key is None and invitation.matches(text) and not await has_keys(context.database)
