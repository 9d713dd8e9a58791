"""What the tools show on a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from tests.chaos.checker import VIOLATIONS, Report


def progress_on(console: Console, *columns: ProgressColumn) -> Progress:
    """Return a bar for long work, which leaves nothing behind, and is not there where nobody looks."""
    return Progress(
        TextColumn("{task.description:<50}"),
        *(columns or (BarColumn(), MofNCompleteColumn())),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


def violations(report: Report) -> Table:
    """Return the table of what the checker found."""
    table = Table("violation", "count", "meaning")
    for name, meaning in VIOLATIONS.items():
        table.add_row(name, str(len(report.violations[name])), meaning)
    return table
