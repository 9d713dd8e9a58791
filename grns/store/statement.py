"""The statements: static SQL, one per file, named by its file."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def statement(name: str) -> str:
    """Return the text of `sql/<name>.sql`."""
    return (files("grns.store") / "sql" / f"{name}.sql").read_text(encoding="utf-8")
