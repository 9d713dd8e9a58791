"""The pages of `docs/reference/`, which are written by a program and kept in the repository."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.site import commands, errors, log_events, messages, python_api, settings
from tests.support.harness import ROOT

FOLDER = ROOT / "docs" / "reference"


# What each page has to be: making one takes up to a second.
PAGES: dict[Path, Callable[[], str]] = {
    FOLDER / "cli.md": commands.page,
    FOLDER / "settings.md": settings.page,
    FOLDER / "messages.md": messages.page,
    FOLDER / "python.md": python_api.page,
    FOLDER / "errors.md": errors.page,
    FOLDER / "log-events.md": log_events.page,
}


def write() -> list[Path]:
    """Write what has changed; return which pages these are."""
    pages = {path: make() for path, make in PAGES.items()}
    changed = [path for path, text in pages.items() if not path.exists() or path.read_text() != text]
    for path in changed:
        path.parent.mkdir(exist_ok=True)
        path.write_text(pages[path])
    return changed
