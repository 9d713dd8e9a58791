"""Brings the schema up to date."""

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

from grns.store.fault import translated

# Alembic keeps what it works on in a global: of two threads, one would migrate the other's database.
_ALEMBIC = threading.Lock()


def _config(url: str | None = None, output: io.StringIO | None = None) -> Config:
    config = Config(output_buffer=output) if output is not None else Config()
    config.set_main_option("script_location", str(files("grns.store") / "migrations").replace("%", "%%"))
    config.attributes["url"] = url
    return config


def newest() -> str:
    """Return the revision that this version of grns needs."""
    return ScriptDirectory.from_config(_config()).get_current_head() or ""


async def upgrade(url: str) -> None:
    """Run the revisions that are missing. Safe to run twice, and from two processes at once."""
    with translated():
        try:
            await asyncio.to_thread(_upgrade, _config(url))
        except DBAPIError as error:
            # SQLAlchemy wraps what its driver says twice.
            if error.orig is not None and isinstance(cause := error.orig.__cause__, Exception):
                raise cause from error
            raise


async def current(url: str) -> str | None:
    """Return the revision that the database has, None where grns was never there."""
    with translated():
        connection = await asyncpg.connect(url, timeout=10)
        try:
            if await connection.fetchval("select to_regclass('grns.schema_version')") is None:
                return None
            revision: str | None = await connection.fetchval("select version_num from grns.schema_version")
            return revision
        finally:
            await connection.close()


def script() -> str:
    """Return the SQL of all revisions, for those who run it by their own means."""
    output = io.StringIO()
    _upgrade(_config(output=output), is_script=True)
    return output.getvalue()


def _upgrade(config: Config, *, is_script: bool = False) -> None:
    with _ALEMBIC:
        command.upgrade(config, "head", sql=is_script)
