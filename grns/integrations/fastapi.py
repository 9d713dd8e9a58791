"""FastAPI: a client for the life of the application, and a dependency that returns it.

```python
from fastapi import FastAPI
from grns.integrations.fastapi import GrnsClient, lifespan

app = FastAPI(lifespan=lifespan())


@app.post("/pages")
async def add_page(url: str, client: GrnsClient) -> dict[str, str]:
    handle = await client.submit(fetch_page, Page(url=url))
    return {"task": handle.id}
```
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI
from starlette.requests import HTTPConnection

from grns.bootstrap.client import connect
from grns.client.client import Client

__all__ = ["GrnsClient", "get_client", "lifespan"]


def lifespan(
    inner: Callable[[FastAPI], AbstractAsyncContextManager[Any]] | None = None, **options: Any
) -> Callable[[FastAPI], AbstractAsyncContextManager[Any]]:
    """Return a lifespan for `FastAPI(lifespan=...)` that opens a client and closes it at the end.

    Args:
        inner: your own lifespan, which runs within it; `get_client` works there as `app.state.grns`.
        options: those of `grns.connect`.
    """

    @asynccontextmanager
    async def connected(app: FastAPI) -> AsyncIterator[Any]:
        async with connect(**options) as client:
            app.state.grns = client
            if inner is None:
                yield
                return
            async with inner(app) as state:
                yield state

    return connected


def get_client(connection: HTTPConnection) -> Client:
    """Return the application's client, for `Depends` in routes and WebSockets.

    Tests replace it with `app.dependency_overrides`.
    """
    client: Client = connection.app.state.grns
    return client


GrnsClient = Annotated[Client, Depends(get_client)]
