"""`grns mcp`."""

from __future__ import annotations

import asyncio
import os
import re

import click

from grns.cli.group import Command
from grns.errors import SettingsError


@click.command(
    cls=Command,
    examples=[
        "GRNS_API_KEY=grns_… grns mcp --url https://grns.internal",
        "GRNS_API_KEY=grns_… grns mcp --workspace acme",
    ],
)
@click.option(
    "--url", metavar="URL", default="http://127.0.0.1:8080", show_default=True, help="URL of the API."
)
@click.option("--workspace", metavar="NAME", help="Workspace, for keys of all workspaces.")
def mcp(url: str, workspace: str | None) -> None:
    """Serve tools of the API over standard input and output, to a program that speaks MCP.

    It uses the key in GRNS_API_KEY: its scopes decide which tools there are. Programs that speak MCP over
    HTTP need no command: their URL is that of the API, with /mcp.
    """
    key = os.environ.get("GRNS_API_KEY", "").strip()
    if not key:
        raise SettingsError("GRNS_API_KEY is not set: create a key with grns admin key create")
    if not re.fullmatch(r"[!-~]+", key):
        raise SettingsError("GRNS_API_KEY has characters that no key has")
    try:
        from grns.api.mcp.stdio import serve
    except ModuleNotFoundError as error:
        missing = SettingsError(f"MCP needs {error.name}, which is not installed")
        missing.add_note("pip install 'grns[mcp]'")
        raise missing from error
    asyncio.run(serve(url, key, workspace))
