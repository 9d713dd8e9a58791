"""Runs the shell blocks of a page as they stand there."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path

from grns.access.keys import create_key
from grns.postgres.database import Database

_SECONDS = 60


async def run_shell(script: str, directory: Path) -> str:
    """Run a script, and return all that it prints."""
    shell = await asyncio.create_subprocess_exec(
        "bash", "-c", script, cwd=directory, start_new_session=True,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        async with asyncio.timeout(_SECONDS):
            said, _ = await shell.communicate()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
    return said.decode()


async def request_variables(database: Database, url: str, *scopes: str) -> str:
    """Return the lines that set what the requests of pages use: API, AUTH and JSON."""
    key, _ = await create_key(
        database, workspace="default", name="shell", scopes=["work", *scopes], actor="cli:test"
    )
    return (
        f"API={url}/api/v1\nAUTH='Authorization: Bearer {key.reveal()}'\n"
        "JSON='Content-Type: application/json'\n"
    )
