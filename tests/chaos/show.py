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

from tests.chaos.checker import VIOLATIONS, Report, history

_SHOWN = 5


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


async def show_violations(console: Console, url: str, report: Report) -> None:
    """Print the first violations of each kind, each with the whole history of its task."""
    for name, details in report.violations.items():
        for detail in details[:_SHOWN]:
            console.print(f"{name}: {detail}", markup=False)
            task_id = next((word.strip(",:") for word in detail.split() if word.startswith("gr-")), None)
            if task_id:
                console.print(await history(url, task_id), markup=False)
