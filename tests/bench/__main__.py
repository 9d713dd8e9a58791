"""`make bench`: everything that the goals speak of, measured on servers of its own, in rounds."""

from __future__ import annotations

import argparse
import logging
import shutil
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

import uvloop
from rich.console import Console

from tests.bench import check, plot
from tests.bench.result import COMMITTED, NoResult, Result, read
from tests.bench.rounds import Run
from tests.bench.scenario import NAMES, PEERS
from tests.bench.show import show
from tests.bench.size import GOALS_ROWS, LEAST_ROWS, MOST_ROWS, Sizes

_MOST_ROUNDS = 99
_ROOT = Path(__file__).parent.parent.parent
_ADVICE = f"run make bench RESULT={COMMITTED.relative_to(_ROOT)}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the options, measure, and return the exit code."""
    options = _read(arguments)
    console = Console(width=None if sys.stdout.isatty() else 120)
    if options.check:
        return _check(console)
    sizes = Sizes(rows=options.rows or GOALS_ROWS, rounds=options.rounds or Sizes.rounds)
    names = [name for name in options.only or NAMES if name != PEERS or not options.no_peers]
    run = _measured(Run(sizes, names), console)
    result = Result(run.figures, sizes, datetime.now(UTC).isoformat(timespec="seconds"), run.machine)
    show(console, result, _last())
    if options.result is not None:
        options.result.write_text(result.dump() + "\n", encoding="utf-8")
    if options.plots is not None:
        for path in plot.draw(result, options.plots):
            console.print(f"drawn: {path}", markup=False)
    return 1 if run.failed else 0


def _measured(run: Run, console: Console) -> Run:
    """Measure everything; what the processes have said is kept where something went wrong."""
    directory = Path(tempfile.mkdtemp(prefix="grns-bench-"))
    directory.chmod(0o755)
    logging.getLogger("grns").setLevel(logging.ERROR)  # of the broker that is killed our client need not tell
    is_well = False
    try:
        uvloop.run(run.measure(directory, Console(stderr=True)))
        is_well = not run.failed
    finally:
        if is_well:
            shutil.rmtree(directory, ignore_errors=True)
        else:
            console.print(f"logs: {directory}", markup=False)
    return run


def _check(console: Console) -> int:
    try:
        committed = check.committed_ratios(COMMITTED)
    except NoResult as error:
        console.print(f"no committed result: {_ADVICE} ({error})", markup=False, soft_wrap=True)
        return 2
    run = _measured(Run(Sizes(), ["check"]), console)
    for remark in run.figures.remarks:
        console.print(remark, markup=False, soft_wrap=True)
    is_held, lines = check.judge(run.figures, committed)
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)
    return 0 if is_held else 1


def _last() -> Result | None:
    """Return the committed result, None where there is none yet."""
    try:
        return read(COMMITTED)
    except NoResult:
        return None


def _read(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--rows", type=int, help=f"tasks of a round; all else follows ({GOALS_ROWS})")
    parser.add_argument("--rounds", type=int, help=f"medians are taken of so many ({Sizes.rounds})")
    parser.add_argument("--only", type=lambda text: text.split(","), help=f"some of: {','.join(NAMES)}")
    parser.add_argument("--no-peers", action="store_true", help="measure no other queues")
    parser.add_argument("--result", type=Path, help="write everything that was measured to this file")
    parser.add_argument("--plots", type=Path, help="draw the pictures into this directory")
    parser.add_argument(
        "--check", action="store_true", help="only hold the whole way against what is committed"
    )
    options = parser.parse_args(arguments)
    COMMITTED.parent.mkdir(exist_ok=True)  # the first result may be written there
    if problem := _problem(options):
        parser.error(problem)
    return options


def _problem(options: argparse.Namespace) -> str | None:
    """Return what is wrong with the options: before minutes of measuring, not after."""
    unknown = [name for name in options.only or () if name not in NAMES]
    if unknown:
        return f"--only: there is no {unknown[0]!r}; there are {', '.join(NAMES)}"
    if options.rows is not None and not LEAST_ROWS <= options.rows <= MOST_ROWS:
        return f"--rows is {LEAST_ROWS} to {MOST_ROWS}, not {options.rows}"
    if options.rounds is not None and not 1 <= options.rounds <= _MOST_ROUNDS:
        return f"--rounds is 1 to {_MOST_ROUNDS}, not {options.rounds}"
    if options.check and any((options.rows, options.rounds, options.only, options.result, options.plots)):
        return "--check measures the same thing each time: it goes with no other option"
    if options.result is not None and (options.result.is_dir() or not options.result.parent.is_dir()):
        return f"--result: {options.result} is no place for a file"
    if options.plots is not None and options.plots.exists() and not options.plots.is_dir():
        return f"--plots: {options.plots} is no directory"
    if options.plots is not None and find_spec("matplotlib") is None:
        return "--plots needs matplotlib: pip install --group bench"
    if not Path("/proc/self/stat").exists():
        return "this reads /proc, which only Linux has"
    return None


if __name__ == "__main__":
    sys.exit(main())
