"""`make mutants [COUNT=…] [SEED=…] [ONLY=…]`: bugs sown into a copy of grns; the checks must find each.

A check that finds nothing is worth what it finds where there is something, and for the reason that is
expected: else the mutant may only have broken what the check stands on. Each kind of check is first run
without a bug.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console

from tests.chaos.bugs import MUTANTS, Mutant
from tests.chaos.checker import VIOLATIONS
from tests.chaos.show import progress_on

_ROOT = Path(__file__).parent.parent.parent
_TREES = ("grns", "tests", "workers", "schemas", "pyproject.toml", "README.md")
_SECONDS = 420.0  # a storm that never drains says so after 300
_END_SECONDS = 60.0
_OUT_OF_TIME = "not ended in time"
_SHOWN = 300
_FOUND, _OTHER, _NOTHING = "found", "found for another reason", "found nothing"
_PYTEST = ("-m", "pytest", "-q", "-x", "--tb=short", "-p", "no:xdist", "-p", "no:cacheprovider")
_STORM = ("-m", "tests.chaos", "--seconds", "40", "--rate", "40", "--faults", "2", "--brief")


@dataclass(frozen=True)
class Check:
    """One kind of check: the command that it is at some places, and what it tells of a failure."""

    command: Callable[[Sequence[str], int], Sequence[str]]
    told: Callable[[str], list[str]]


@dataclass(frozen=True)
class Finding:
    """What a check said of a copy, and how long that took; `output` is the end of all that it printed."""

    verdict: str
    check: str
    told: str
    seconds: float
    output: str = ""


def told_by_pytest(output: str) -> list[str]:
    """Return where an assertion did not hold, and all errors; only these where it was no assertion."""
    errors = re.findall(r"^E   +(.+)$", output, re.MULTILINE)
    failed = [error for error in errors if error.startswith(("assert", "AssertionError"))]
    return [*(re.findall(r"^\S+:\d+: (in \w+)$", output, re.MULTILINE) if failed else ()), *errors]


def told_by_checker(output: str) -> list[str]:
    """Return what was violated, or never drained."""
    words = ("violated: ", "not drained: ", *(f"{name}: " for name in VIOLATIONS))
    return [line for line in output.splitlines() if line.startswith(words)]


CHECKS = {
    "walks": Check(lambda _at, _seed: (*_PYTEST, "tests/interleavings/test_model_walks.py"), told_by_pytest),
    "tests": Check(lambda at, _seed: (*_PYTEST, *at), told_by_pytest),
    "points": Check(
        lambda at, seed: ("-m", "tests.chaos.failpoints", "--seed", str(seed), "--only", ",".join(at)),
        told_by_checker,
    ),
    "storm": Check(lambda at, seed: (*_STORM, "--seed", str(seed), "--only", ",".join(at)), told_by_checker),
}


def copy(directory: Path) -> None:
    """Copy everything that a check needs."""
    for name in _TREES:
        source = _ROOT / name
        if source.is_dir():
            shutil.copytree(source, directory / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, directory / name)


def sow(mutant: Mutant, directory: Path) -> None:
    """Put a bug into a copy."""
    for edit in mutant.edits:
        place = directory / edit.place
        text = place.read_text()
        if edit.right not in text:
            raise SystemExit(f"{mutant.name}: {edit.place} has changed, and the mutant with it")
        place.write_text(text.replace(edit.right, edit.wrong))


def judged(code: int, told: Sequence[str], words: Sequence[str]) -> tuple[str, str]:
    """Return the verdict on a check that ended, and what it told of the bug."""
    if code == 0:
        return _NOTHING, ""
    for line in told:
        if any(word in line for word in words):
            return _FOUND, line
    return _OTHER, " ".join(told) or f"it ended with {code}"


def try_out(name: str, at: Sequence[str], seed: int, mutant: Mutant | None = None) -> Finding:
    """Run one check on a copy, with a bug or without."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="grns-mutant-", ignore_cleanup_errors=True) as place:
        directory = Path(place)
        directory.chmod(0o755)  # Postgres is not run as root
        copy(directory)
        if mutant is not None:
            sow(mutant, directory)
        code, output, is_in_time = run(CHECKS[name].command(at, seed), directory, seed, _SECONDS)
    told = CHECKS[name].told(output) if is_in_time else [_OUT_OF_TIME]
    verdict, said = judged(code if is_in_time else 1, told, mutant.words if mutant is not None else ())
    return Finding(verdict, name, said[:_SHOWN], round(time.monotonic() - began, 1), output[-4000:])


def run(arguments: Sequence[str], directory: Path, seed: int, within_seconds: float) -> tuple[int, str, bool]:
    """Run a command on a copy; returns its exit code, what it printed, and whether it ended in its time."""
    with (directory / "printed").open("w+") as printed:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=directory,
            env={**os.environ, "PYTHONPATH": str(directory), "TMPDIR": str(directory), "SEED": str(seed)},
            stdout=printed,
            stderr=printed,
        )
        is_in_time = _ends(process, within_seconds)
        if not is_in_time:
            process.send_signal(signal.SIGINT)  # it ends the servers that it has started
            if not _ends(process, _END_SECONDS):
                process.kill()
        code = process.wait()
        printed.seek(0)
        return code, printed.read(), is_in_time


def _ends(process: subprocess.Popen[bytes], within_seconds: float) -> bool:
    try:
        process.wait(within_seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


class Trial:
    """Tries mutants, one after another, each kind of check without one before; tells as it goes."""

    def __init__(self, mutants: Sequence[Mutant], seed: int, console: Console) -> None:
        self._mutants = mutants
        self._seed = seed
        self._console = console
        self.controls: dict[str, Finding] = {}
        self.findings: dict[str, Finding] = {}

    @property
    def is_good(self) -> bool:
        """Say whether each check passes without a bug, and finds each bug for the reason that is expected."""
        controls = all(one.verdict == _NOTHING for one in self.controls.values())
        return controls and all(one.verdict == _FOUND for one in self.findings.values())

    def run(self) -> None:
        """Try all; nothing more where a check fails without a bug."""
        with progress_on(self._console) as progress:
            bar = progress.add_task("", total=len(self._mutants))
            for name in dict.fromkeys(mutant.check for mutant in self._mutants):
                progress.update(bar, description=f"{name}, without a bug")
                at = [mutant.at for mutant in self._mutants if mutant.check == name]
                control = self.controls[name] = try_out(name, list(dict.fromkeys(at)), self._seed)
                self._tell(f"{name}, without a bug", control, _NOTHING)
            for mutant in self._mutants if self.is_good else ():
                progress.update(bar, description=mutant.name)
                found = self.findings[mutant.name] = try_out(mutant.check, [mutant.at], self._seed, mutant)
                self._tell(mutant.name, found, _FOUND)
                progress.advance(bar)

    def result(self) -> dict[str, object]:
        """Return what came of it, to be written down."""
        return {
            "seed": self._seed,
            "controls": {name: _record(one) for name, one in self.controls.items()},
            "mutants": {name: _record(one) for name, one in self.findings.items()},
        }

    def _tell(self, name: str, finding: Finding, wanted: str) -> None:
        line = f"{name}: {finding.verdict} ({finding.check}, {finding.seconds:.0f} s) {finding.told}"
        is_wanted = finding.verdict == wanted
        self._console.print(line, style=None if is_wanted else "red", markup=False, soft_wrap=True)
        if not is_wanted:
            self._console.print(finding.output, markup=False, soft_wrap=True)


def _record(finding: Finding) -> dict[str, object]:
    return {name: value for name, value in asdict(finding).items() if name != "output"}


def main() -> int:
    """Try mutants, and return the exit code."""
    parser = argparse.ArgumentParser(prog="make mutants")
    parser.add_argument("--count", type=int, help="so many, drawn; all without it")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--only", default="", help="those whose names, or checks, have this in them")
    parser.add_argument("--result", type=Path, help="a file to write the result to")
    options = parser.parse_args()
    chosen = [one for one in MUTANTS if options.only in one.name or options.only == one.check]
    chosen = random.Random(options.seed).sample(chosen, min(options.count or len(chosen), len(chosen)))
    console = Console(width=None if sys.stdout.isatty() else 150)
    console.print(f"SEED={options.seed}")
    trial = Trial(sorted(chosen, key=MUTANTS.index), options.seed, console)
    try:
        trial.run()
    finally:
        if options.result is not None:
            options.result.write_text(json.dumps(trial.result(), indent=1) + "\n")
    found = sum(one.verdict == _FOUND for one in trial.findings.values())
    console.print(f"{found} of {len(chosen)} mutants found (SEED={options.seed})")
    return 0 if trial.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
