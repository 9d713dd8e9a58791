"""`make recovery [SAMPLES=30]`: how long each fault is felt, so many of each kind, with a lease of 5 s."""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import statistics
import sys
import tempfile
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.chaos.show import progress_on
from tests.chaos.stage import Stage
from tests.chaos.trials import FELT, LEASE_SECONDS, TRIALS, Felt, Field, Trial, TrialFailed
from tests.support.harness import quantile

_STAGES = 2


@dataclass
class Measured:
    """What came of one trial: how many faults there were, the times of all, and what went wrong."""

    trial: Trial
    faults: int = 0
    felt: Felt = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def add(self, felt: Felt) -> None:
        """Take in what one fault came to."""
        for part, seconds in felt.items():
            self.felt.setdefault(part, []).extend(seconds)

    @property
    def is_good(self) -> bool:
        """Say whether each fault was recovered from, within the bound."""
        seconds = self.felt.get(FELT, [])
        return bool(seconds) and not self.failures and quantile(seconds, 0.99) <= self.trial.bound

    def result(self) -> dict[str, object]:
        """Return it as the result file has it."""
        parts = {part or "felt": _told(seconds) for part, seconds in self.felt.items()}
        return {"bound": self.trial.bound, "faults": self.faults, "failures": self.failures, **parts}


def _told(seconds: list[float]) -> dict[str, object]:
    return {
        "p50": round(statistics.median(seconds), 3),
        "p99": round(quantile(seconds, 0.99), 3),
        "longest": round(max(seconds), 3),
        "times": [round(one, 3) for one in sorted(seconds)],
    }


async def measure(trials: list[Trial], samples: int, directory: Path, console: Console) -> list[Measured]:
    """Let each fault strike so many times, on stages side by side; returns what was measured."""
    measured = [Measured(trial) for trial in trials]
    left = deque(one for one in measured for _ in range(samples))
    with progress_on(console) as progress:
        bar = progress.add_task("", total=len(left))

        def tell(one: Measured) -> None:
            progress.update(bar, description=one.trial.name, advance=1)

        async with asyncio.TaskGroup() as stages:
            for number in range(min(_STAGES, len(left))):
                place = directory / str(number)
                place.mkdir()
                stages.create_task(_on_stage(place, left, tell))
    return measured


async def _on_stage(directory: Path, left: deque[Measured], tell: Callable[[Measured], None]) -> None:
    """Strike on one stage until nothing is left to do."""
    # Trials read in the logs who has started: that is told at `info`.
    stage = Stage(directory, rate=0.0, lease_seconds=LEASE_SECONDS, has_wrong_clocks=False, log_level="info")
    try:
        await stage.start()
        ground = Field(stage)
        while left:
            one = left.popleft()
            one.faults += 1
            try:
                one.add(await one.trial.strike(ground))
            except (TrialFailed, AssertionError) as error:
                one.failures.append(str(error))
                await stage.heal()
            tell(one)
        await ground.settled()
    finally:
        await stage.end()


def show(console: Console, measured: list[Measured]) -> bool:
    """Print what was measured; True where all is within its bound."""
    table = Table(
        "fault", "faults", "times", "p50", "p99", "longest", "bound", title=f"lease {LEASE_SECONDS:g} s"
    )
    for one in measured:
        for part, seconds in (one.felt or {FELT: []}).items():
            figures = (statistics.median(seconds), quantile(seconds, 0.99), max(seconds)) if seconds else ()
            table.add_row(
                f"  its first {part}" if part else one.trial.name,
                "" if part else str(one.faults),
                str(len(seconds)),
                *([f"{figure:.2f} s" for figure in figures] or [""] * 3),
                "" if part else f"{one.trial.bound:.2f} s",
                style="" if one.is_good else "red",
            )
    console.print(table)
    for one in measured:
        for failure in one.failures:
            console.print(f"{one.trial.name}: {failure}", markup=False)
    return all(one.is_good for one in measured)


def main() -> int:
    """Read the options, run, and return the exit code."""
    parser = argparse.ArgumentParser(prog="make recovery")
    parser.add_argument("--samples", type=int, default=30, help="so many faults of each kind")
    parser.add_argument("--only", default="", help="those whose names have this in them")
    parser.add_argument("--result", type=Path, help="a file to write the result to")
    options = parser.parse_args()
    trials = [trial for trial in TRIALS if options.only in trial.name]
    console = Console(width=None if sys.stdout.isatty() else 110)
    directory = Path(tempfile.mkdtemp(prefix="grns-recovery-"))
    directory.chmod(0o755)
    try:
        measured = asyncio.run(measure(trials, options.samples, directory, console))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    if options.result is not None:
        result = {one.trial.name: one.result() for one in measured}
        options.result.write_text(json.dumps(result, indent=1) + "\n")
    return 0 if show(console, measured) else 1


if __name__ == "__main__":
    sys.exit(main())
