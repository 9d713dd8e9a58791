"""What the tests of the HTTP API share: the app on a real database, and somebody who asks it.

No tests live here; the name has pytest show what its assertions were about.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx2
import pytest
from starlette.types import ASGIApp

from grns.access.keys import create_key
from grns.access.workspaces import create_workspace
from grns.api.app import make_api
from grns.api.context import ApiContext
from grns.api.server import ApiServer
from grns.bootstrap import api as doors
from grns.bootstrap.app import App
from grns.postgres.database import Database
from tests.support.harness import eventually, settings_for
from tests.support.operations import SignalRecorder
from tests.support.store import ACTOR

OURS, THEIRS = "acme", "rival"
HERE = ("127.0.0.1", 1234)


class Door:
    """The API, and who comes in there."""

    def __init__(self, database: Database) -> None:
        self.emitted = SignalRecorder()
        app = App(settings_for(database.url), (self.emitted,))
        self.database = database
        self.context: ApiContext = doors.context(app, database, app.transport("test"))
        self.api = make_api(self.context)

    def visitor(
        self, key: str | None = None, *, address: tuple[str, int] = HERE, **headers: str
    ) -> httpx2.AsyncClient:
        """Return somebody who asks, with a key or without one."""
        shown = {} if key is None else {"Authorization": f"Bearer {key}"}
        return httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app=self.api, client=address),
            base_url="http://localhost",
            headers={**shown, **{name.replace("_", "-"): value for name, value in headers.items()}},
        )

    async def key(self, *scopes: str, workspace: str | None = OURS) -> str:
        """Make a key."""
        made, _ = await create_key(
            self.database, workspace=workspace, name="test", scopes=scopes or ["admin"], actor=ACTOR
        )
        return made.reveal()

    async def administrator(self) -> httpx2.AsyncClient:
        """Return somebody who may do everything in the default workspace, and reach no other."""
        return self.visitor(await self.key("admin", workspace="default"))

    async def root(self) -> str:
        """Make a key that may do everything, in all workspaces."""
        return await self.key("admin", workspace=None)

    async def shown(self) -> dict[str, str]:
        """Make such a key, and return the header that shows it."""
        return {"Authorization": f"Bearer {await self.root()}"}


def actor_of(visitor: httpx2.AsyncClient) -> str:
    """Return how the log names somebody who shows a key."""
    return f"key:{visitor.headers['Authorization'].split('_')[1]}"


@pytest.fixture
async def door(shared: Database) -> AsyncIterator[Door]:
    """The API on the shared database, with two workspaces besides the default one, and without any key."""
    for workspace in (OURS, THEIRS):
        await create_workspace(shared, workspace, actor=ACTOR)
    found = Door(shared)
    yield found
    await found.context.agent_claims.close()


@pytest.fixture
async def local(door: Door) -> AsyncIterator[httpx2.AsyncClient]:
    """Somebody who may do everything in the default workspace, and reach no other."""
    async with await door.administrator() as visitor:
        yield visitor


@asynccontextmanager
async def serving(context: ApiContext, app: ASGIApp, *, port: int = 0) -> AsyncIterator[ApiServer]:
    """Serve on a real port, from when somebody can ask there."""
    server = ApiServer(context, app, host="127.0.0.1", port=port)
    running = asyncio.create_task(server.run())

    async def takes_connections() -> bool:
        if running.done():
            await running
        try:
            _, writer = await asyncio.open_connection(*server._socket.getsockname())
        except ConnectionRefusedError:
            return False
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        return True

    try:
        await eventually(takes_connections)
        yield server
    finally:
        server.stop()
        await running


def problem_of(answer: httpx2.Response, status: int) -> str:
    """Return the code of a problem, which is as problems are."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    said: dict[str, Any] = answer.json()
    assert said["status"] == status
    assert said["title"]
    assert len(said["detail"]) <= 500
    code: str = said["code"]
    return code


def good(answer: httpx2.Response, statuses: Collection[int] = (200, 201)) -> Any:
    """Return what a good answer says."""
    assert answer.status_code in statuses, answer.text
    assert answer.headers["cache-control"] == "no-store"
    return answer.json()
