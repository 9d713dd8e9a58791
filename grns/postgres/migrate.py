"""Upgrade the schema of the database."""

from __future__ import annotations

import asyncio
import io
import threading
from importlib.resources import files

import asyncpg
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy.exc import DBAPIError

from grns.postgres.errors import translated
from grns.postgres.statements import statement

# Alembic keeps its context in a global: two threads could migrate each other's database.
_ALEMBIC = threading.Lock()


def _config(url: str | None = None, output: io.StringIO | None = None) -> Config:
    config = Config(output_buffer=output) if output is not None else Config()
    config.set_main_option("script_location", str(files("grns.postgres") / "migrations").replace("%", "%%"))
    config.attributes["url"] = url
    return config


def newest() -> str:
    """Return the revision that this version of grns needs."""
    return ScriptDirectory.from_config(_config()).get_current_head() or ""


async def upgrade(url: str, *, payload_bytes: int | None = None) -> None:
    """Run missing revisions. Safe to run twice, and from two processes at once.

    Args:
        url: where the database is.
        payload_bytes: the largest payload that `grns.submit_task` takes from now on; None: as before.
    """
    with translated():
        try:
            await asyncio.to_thread(_upgrade, _config(url))
        except DBAPIError as error:
            # SQLAlchemy wraps what its driver says twice.
            if error.orig is not None and isinstance(cause := error.orig.__cause__, Exception):
                raise cause from error
            raise
        if payload_bytes is not None:
            connection = await asyncpg.connect(url, timeout=10)
            try:
                await connection.execute(statement("set_payload_bytes"), payload_bytes)
            finally:
                await connection.close()


async def current(url: str) -> str | None:
    """Return the revision of the database; None without a schema of grns."""
    with translated():
        connection = await asyncpg.connect(url, timeout=10)
        try:
            if await connection.fetchval("select to_regclass('grns.schema_version')") is None:
                return None
            revision: str | None = await connection.fetchval("select version_num from grns.schema_version")
            return revision
        finally:
            await connection.close()


def script(*, payload_bytes: int | None = None) -> str:
    """Return the SQL that `upgrade` runs, for other migration tools."""
    output = io.StringIO()
    _upgrade(_config(output=output), is_script=True)
    if payload_bytes is not None:
        output.write(f"\nselect grns.set_payload_bytes({payload_bytes});\n")
    return output.getvalue()


def _upgrade(config: Config, *, is_script: bool = False) -> None:
    with _ALEMBIC:
        command.upgrade(config, "head", sql=is_script)
