"""`make model`: every interleaving of two tasks, two workers, two attempts and two faults.

Attempts succeed or ask for a retry; faults are crashes, lost acks, redeliveries, leases that run out and the
broker's loss. Release, cancel and redrive are in the walks that `test_model_walks.py` takes on Postgres.
"""

from __future__ import annotations

import sys
import time

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.interleavings.explore import Exploration, explore
from tests.interleavings.row import Violation
from tests.interleavings.variants import VARIANTS, find
from tests.interleavings.world import Rules, begin

_WORLDS = "{task.description}: {task.completed:,} worlds, {task.fields[steps]:,} steps"


def main() -> int:
    """Explore, then let each variant be found; returns the exit code."""
    console = Console()
    began = time.monotonic()
    with Progress(
        SpinnerColumn(), TextColumn(_WORLDS), TimeElapsedColumn(), console=console, transient=True
    ) as progress:
        bar = progress.add_task("exploring", total=None, steps=0)

        def tell(seen: Exploration) -> None:
            progress.update(bar, completed=len(seen.parents), steps=seen.steps)

        try:
            seen = explore(begin(2, 2, 2, 2), Rules(), tell)
        except Violation as error:
            console.print(f"violated: {error}", markup=False)
            return 1
    console.print(
        f"2 tasks x 2 workers x 2 attempts x 2 faults: {seen.worlds:,} worlds, {seen.steps:,} steps, "
        f"{seen.ends} ends, at most {seen.deepest - 1} steps from the first world; nothing violated, "
        f"nothing stuck ({time.monotonic() - began:.0f} s)"
    )
    return _show_variants(console)


def _show_variants(console: Console) -> int:
    table = Table("built wrongly", "steps", "what the model finds")
    found = {variant: find(variant) for variant in VARIANTS}
    for variant, way in found.items():
        table.add_row(VARIANTS[variant], str(len(way) - 2), "\n".join(way[:-1]) if way else "NOTHING")
    console.print(table)
    return 0 if all(found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
