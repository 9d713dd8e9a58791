"""`make fuzz EXAMPLES=1000000`: each input is read in every way in which grns reads messages.

`tests/fuzz/test_fuzz.py` does the same with fewer inputs.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from random import SystemRandom

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from tests.fuzz.runs import PART, Tally, part
from tests.support.bad_input import ACCEPTED


def show(console: Console, tally: Tally, seconds: float) -> None:
    """Print what became of the inputs."""
    table = Table("answer", "inputs", "share")
    for code, count in tally.codes.most_common():
        table.add_row(code, f"{count:,}", f"{count / tally.codes.total():.2%}")
    console.print(table)
    accepted, total = tally.codes[ACCEPTED], tally.codes.total()
    forms = ", ".join(f"{form} {count:,}" for form, count in tally.forms.most_common())
    console.print(f"{total:,} inputs ({forms}) in {seconds:.0f} s")
    console.print(f"{accepted:,} accepted, {total - accepted:,} refused with {len(tally.codes) - 1} codes")
    console.print(
        f"slowest: {tally.slowest_seconds * 1000:.1f} ms of CPU time, {tally.slowest_bytes:,} bytes"
    )


def main() -> int:
    """Run from the command line: each part in a process of its own, for hypothesis keeps what it has seen."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=None, help="the same seed makes the same inputs")
    parser.add_argument("--seconds", type=float, default=None, help="stop after so long all the same")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    console, tally, began = Console(), Tally(), time.monotonic()
    seed = SystemRandom().getrandbits(32) if options.seed is None else options.seed
    console.print(f"SEED={seed}")
    columns = (TextColumn("inputs"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    numbers = [seed + 1000 * place for place in range(-(-options.examples // PART))]
    with (
        Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress,
        ProcessPoolExecutor(
            options.jobs, mp_context=get_context("spawn"), max_tasks_per_child=1
        ) as processes,
    ):
        work = progress.add_task("inputs", total=options.examples)
        parts = [processes.submit(part, number) for number in numbers]
        try:
            for done in as_completed(parts, timeout=options.seconds):
                tally += done.result()
                progress.update(work, completed=tally.codes.total())
        except (TimeoutError, KeyboardInterrupt):
            console.print("stopped before the end")
        finally:
            processes.shutdown(cancel_futures=True)
    show(console, tally, time.monotonic() - began)
    return 0


if __name__ == "__main__":
    sys.exit(main())
