"""Tools over standard input and output, for hosts that start a program."""

from __future__ import annotations

import socket
import sys
from contextlib import closing

import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client

from grns.postgres.database import Database
from tests.mcp.host import WORK, called, key, tools_of
from tests.support.api import Door
from tests.support.harness import status_of, submit


async def test_a_program_speaks_it_on_standard_streams(url: str, door: Door, shared: Database) -> None:
    made = await submit(shared)
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "grns", "mcp", "--url", url],
        env={"GRNS_API_KEY": await key(door, "work")},
    )
    async with Client(stdio_client(server)) as client:
        assert await tools_of(client) == WORK
        work = await called(client, "work_next", task_types=["noop"])
        assert await called(client, "work_done", token=work["token"]) == {"status": "succeeded"}
    assert await status_of(shared, made.id) == "succeeded"


@pytest.mark.parametrize("path", ["", "/nowhere"], ids=["closed", "another server"])
async def test_a_program_without_an_api_says_where_it_looked(url: str, door: Door, path: str) -> None:
    with closing(socket.socket()) as held:
        held.bind(("127.0.0.1", 0))
        closed = f"http://127.0.0.1:{held.getsockname()[1]}"
        where = f"{url}{path}" if path else closed
        server = StdioServerParameters(
            command=sys.executable,
            args=["-m", "grns", "mcp", "--url", where],
            env={"GRNS_API_KEY": await key(door, "work")},
        )
        async with Client(stdio_client(server)) as client:
            with pytest.raises(MCPError, match=f"at {where}|{where}.* is no API of grns"):
                await client.list_tools()
