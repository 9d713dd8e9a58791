"""MCP over standard input and output, for hosts that start a program: its tools call the API over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx2
from mcp.server.stdio import stdio_server

from grns.api.in_process import ApiProblemError, Query
from grns.api.mcp.server import McpTools
from grns.api.route import PREFIX
from grns.errors import OutcomeUnknownError, UnavailableError
from grns.model.problem import Problem

_SECONDS = 90.0
_NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)


@dataclass(frozen=True, slots=True)
class RemoteApi:
    """The API at a URL."""

    client: httpx2.AsyncClient

    async def call(
        self, method: str, path: str, *, query: Query | None = None, body: Mapping[str, Any] | None = None
    ) -> Any:
        """Send one request, and return the answer's JSON; None if it has none."""
        params = {name: value for name, value in (query or {}).items() if value is not None}
        try:
            answer = await self.client.request(method, PREFIX + path, params=params, json=body)
        except _NOT_SENT as error:
            why = f"{type(error).__name__} {error}"
            raise UnavailableError(f"no API answers at {self.client.base_url}: {why}") from error
        except httpx2.HTTPError as error:
            raise OutcomeUnknownError(
                f"{self.client.base_url} gave no answer ({type(error).__name__}): it may have done it"
            ) from error
        if answer.status_code == 204:
            return None
        try:
            said = answer.json()
            if answer.is_success:
                return said
            problem = Problem(**{name: said[name] for name in Problem.__slots__})
        except (ValueError, KeyError, TypeError) as error:
            why = f"it answers with status {answer.status_code}, and not as grns does"
            raise UnavailableError(f"{self.client.base_url} is no API of grns: {why}") from error
        raise ApiProblemError(problem)


async def serve(url: str, key: str, workspace: str | None) -> None:
    """Serve until standard input ends."""
    headers = {"Authorization": f"Bearer {key}"}
    if workspace is not None:
        headers["Grns-Workspace"] = workspace
    base = url.rstrip("/").removesuffix(PREFIX)
    async with httpx2.AsyncClient(base_url=base, headers=headers, timeout=_SECONDS) as client:
        server = McpTools(lambda _ctx: RemoteApi(client)).server()
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())
