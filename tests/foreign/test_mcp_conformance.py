"""The official conformance suite of MCP, against `/mcp`.

It sends no key, so the server adds one here. Its other scenarios are for servers without keys (rebound hosts)
or for tools, resources and prompts of a demonstration server, which grns does not have. 0.1.13 is its
latest that runs on the node of Debian 13.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from grns.web.app import make_site
from tests.foreign.conftest import INSTALL_SECONDS
from tests.mcp.host import key
from tests.support.api import Door, serving

pytestmark = pytest.mark.timeout(INSTALL_SECONDS + 120)
SCENARIOS = ("server-initialize", "ping", "tools-list", "server-sse-multiple-streams")


def with_key(app: ASGIApp, shown: str) -> ASGIApp:
    """Let each request show a key."""

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope["headers"] = [*scope["headers"], (b"authorization", f"Bearer {shown}".encode())]
        await app(scope, receive, send)

    return call


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_the_conformance_suite_finds_nothing(door: Door, programs: Path, scenario: str) -> None:
    shown = await key(door, "work", "submit", "read")
    async with serving(door.context, with_key(make_site(door.context), shown)) as server:
        process = await asyncio.create_subprocess_exec(
            "node_modules/.bin/conformance", "server", "--url", f"{server.url}/mcp", "--scenario", scenario,
            cwd=programs, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        said = (await process.communicate())[0].decode()
    assert process.returncode == 0, said
    assert "0 failed" in said, said
