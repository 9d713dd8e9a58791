"""`make bench-interfaces`: API, dashboard and a bulk redrive with a million tasks, on servers of its own."""

from __future__ import annotations

import argparse
import logging
import shutil
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import uvloop
from rich.console import Console

from tests.bench.interfaces.run import PARTS, Run
from tests.bench.interfaces.show import dump, has_missed, show
from tests.bench.interfaces.size import GOALS_ROWS, LEAST_ROWS, MOST_ROWS, Sizes


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the options, measure, and return the exit code: 1 where a goal is missed, or something broke."""
    options = _read(arguments)
    console = Console(width=None if sys.stdout.isatty() else 140)
    sizes = Sizes(rows=options.rows)
    run = Run(sizes, options.only or list(PARTS))
    directory = Path(tempfile.mkdtemp(prefix="grns-interfaces-"))
    directory.chmod(0o755)
    logging.getLogger("grns").setLevel(logging.ERROR)
    is_well = False
    try:
        uvloop.run(run.measure(directory, Console(stderr=True)))
        is_well = not run.has_failed
    finally:
        if is_well:
            shutil.rmtree(directory, ignore_errors=True)
        else:
            console.print(f"logs: {directory}", markup=False)
    show(console, run.figures, sizes, run.machine)
    if options.result is not None:
        measured_at = datetime.now(UTC).isoformat(timespec="seconds")
        text = dump(run.figures, sizes, measured_at, run.machine)
        options.result.write_text(text + "\n", encoding="utf-8")
    return 1 if run.has_failed or has_missed(run.figures, sizes) else 0


def _read(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench-interfaces", description=__doc__)
    parser.add_argument("--rows", type=int, default=GOALS_ROWS, help=f"tasks in the table ({GOALS_ROWS})")
    parser.add_argument("--only", type=lambda text: text.split(","), help=f"some of: {','.join(PARTS)}")
    parser.add_argument("--result", type=Path, help="write everything that was measured to this file")
    options = parser.parse_args(arguments)
    if problem := _problem(options):
        parser.error(problem)
    return options


def _problem(options: argparse.Namespace) -> str | None:
    """Return what is wrong with the options: before minutes of measuring, not after."""
    unknown = [name for name in options.only or () if name not in PARTS]
    if unknown:
        return f"--only: there is no {unknown[0]!r}; there are {', '.join(PARTS)}"
    if not LEAST_ROWS <= options.rows <= MOST_ROWS:
        return f"--rows is {LEAST_ROWS} to {MOST_ROWS}, not {options.rows}"
    if options.result is not None and (options.result.is_dir() or not options.result.parent.is_dir()):
        return f"--result: {options.result} is no place for a file"
    return None


if __name__ == "__main__":
    sys.exit(main())
