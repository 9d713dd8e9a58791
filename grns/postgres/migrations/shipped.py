"""Runs a shipped SQL file inside a revision."""

from __future__ import annotations

from importlib.resources import files

from alembic import context, op
from sqlalchemy.util import await_only


def run(name: str) -> None:
    """Run `sql/<name>.sql`, or print it with --sql."""
    script = (files("grns.postgres.migrations") / "sql" / f"{name}.sql").read_text(encoding="utf-8")
    if context.is_offline_mode():
        op.get_context().impl.static_output(script)
        return
    # The driver's own execute takes many statements at once; it shares the open transaction.
    driver = op.get_bind().connection.driver_connection
    await_only(driver.execute(script))  # type: ignore[union-attr]
