"""Runs shipped SQL files inside a revision."""

from __future__ import annotations

from importlib.resources import files

from alembic import context, op
from sqlalchemy.util import await_only


def run(name: str) -> None:
    """Run the files of `sql/<name>/` in the order of their names, or print them with --sql."""
    parts = sorted((files("grns.postgres.migrations") / "sql" / name).iterdir(), key=lambda part: part.name)
    script = "\n".join(part.read_text(encoding="utf-8") for part in parts)
    if context.is_offline_mode():
        op.get_context().impl.static_output(script)
        return
    # The driver's own execute takes many statements at once; it shares the open transaction.
    driver = op.get_bind().connection.driver_connection
    await_only(driver.execute(script))  # type: ignore[union-attr]
