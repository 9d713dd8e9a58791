"""SQL statements: one file each, in the package that owns it, named after the file."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import grns

_composed: dict[str, str] = {}


@cache
def paths() -> dict[str, Path]:
    """Return the file of every statement by its name (`grns/<package>/sql/<name>.sql`)."""
    return {path.stem: path for path in Path(grns.__file__).parent.glob("*/sql/*.sql")}


@cache
def statement(name: str) -> str:
    """Return the text of `<name>.sql`, or of a statement that `compose` has made."""
    return _composed.get(name) or paths()[name].read_text(encoding="utf-8")


def compose(name: str, template: str, **parts: str) -> None:
    """Create a statement by filling in the `{parts}` of another; they come from code, never from input."""
    _composed[name] = statement(template).format(**parts)
