"""Markdown, written by programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

GENERATED = "<!-- Written by `make docs` from the code: what is changed here is overwritten. -->\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; a bar in a cell stays one."""
    lines = [list(head), ["---"] * len(head), *(list(row) for row in rows)]
    return "".join("| " + " | ".join(_cell(cell) for cell in line) + " |\n" for line in lines)


def code(text: str) -> str:
    """Return a piece of code within a line."""
    return f"`{text}`" if text else ""


def _cell(text: str) -> str:
    return (
        text.replace("\n", " ").replace("|", "\\|").replace("<", "&lt;") if "`" not in text else _quoted(text)
    )


def _quoted(text: str) -> str:
    """Escape what stands outside of code; a bar has to be escaped within it, too."""
    parts = text.replace("\n", " ").replace("|", "\\|").split("`")
    return "`".join(part if place % 2 else part.replace("<", "&lt;") for place, part in enumerate(parts))
