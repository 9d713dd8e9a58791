"""`make failpoints [COUNT=40] [SEED=…]`: every moment x action x {first, third hit}, one after another.

Somebody is started with one failpoint armed, and work goes on until it strikes; then all must come to its
end as if nothing had been. At the end of all the checker of the storm looks at everything that happened.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg
from rich.console import Console
from rich.table import Table

from tests.chaos.checker import Checker, Report
from tests.chaos.limits import put_limits
from tests.chaos.moments import ACTIONS, HITS, MOMENTS, Moment
from tests.chaos.schedules import pause_all, put_all
from tests.chaos.show import progress_on, show_violations, violations
from tests.chaos.stage import Seat, Stage, send_all
from tests.chaos.traffic import Traffic
from tests.support.harness import eventually

# Longer than a storm's: several stages start processes side by side, on machines of any speed.
_LEASE_SECONDS = 6.0
_STRIKE_SECONDS = 60.0
_RECOVER_SECONDS = 90.0
_SEEN_SECONDS = 1.0  # a strike is seen so much later at most
_SOUND = "sound"
_RATE = 3.0
_KEEPERS = ("renew.", "touch_worker.")
_LEFT = """
    select (select count(*) from grns.tasks where finished_at is null and created_at <= $1)
        + (select count(*) from grns.mail where acked_at is null and created_at <= $1)
        + greatest(0, $2 - (select low from grns.relay_cursor))
        + greatest(0, $2 - (select low from grns.count_cursor))
        + greatest(0, $2 - (select low from grns.follow_cursor))
        + (select num_nonnulls(evt_lost_since, dlq_lost_since) from grns.relay_cursor)
"""


@dataclass(frozen=True)
class Case:
    """One failpoint: where, what, and at which hit."""

    moment: Moment
    action: str
    hit: int

    def __str__(self) -> str:
        return f"{self.moment}={self.action}#{self.hit}"

    @property
    def failpoints(self) -> str:
        """What its process is started with."""
        own = f"{self.moment.name}={self.action}#{self.hit}"
        return ",".join(filter(None, (own, self.moment.beside)))

    @property
    def goes_on(self) -> bool:
        """Say whether its process, or a child of it, would be struck again later."""
        return bool(self.moment.beside) or self.moment.name.startswith(_KEEPERS)


@dataclass(frozen=True)
class Verdict:
    """What came of one case: `sound`, or what went wrong; and how long the recovery took."""

    word: str
    seconds: float | None = None

    def __str__(self) -> str:
        return self.word if self.seconds is None else f"{self.word} ({self.seconds:.1f} s)"


CASES = [
    Case(moment, action, hit)
    for moment in MOMENTS
    for action in moment.actions
    for hit in HITS
    if hit == 1 or not moment.is_rare
]


class Range:
    """Where the cases are tried: one stage for all of them."""

    def __init__(self, stage: Stage, chance: random.Random) -> None:
        self._stage = stage
        self._traffic = Traffic(stage, chance)

    async def try_out(self, case: Case) -> Verdict:
        """Try one case, and say what came of it."""
        seat = next(seat for seat in self._stage.seats if seat.name == case.moment.seat)
        log = self._stage.directory / f"{seat.name}.log"
        offset = log.stat().st_size
        began = time.time()
        process = await self._again(seat, case.failpoints)

        async def has_struck() -> bool:
            with log.open() as lines:
                lines.seek(offset)
                return f"failpoint {case.moment.name}: " in lines.read()

        struck_at = None
        try:
            async with self._traffic.flowing(case.moment.needs, seat):
                await eventually(has_struck, within_seconds=_STRIKE_SECONDS)
                struck_at = time.time()
        except AssertionError:
            return Verdict("never reached")
        finally:
            if case.action == "stop":
                await self._thaw(seat, process.pid)
            if struck_at is not None:
                # What is armed beside it strikes again and again, from the beginning.
                since = began if case.moment.beside else struck_at - _SEEN_SECONDS
                self._stage.note_hit(str(case), seat.name, since)
        if case.goes_on:
            await self._again(seat)
        return await self.recovered()

    async def _again(self, seat: Seat, failpoints: str = "") -> subprocess.Popen[bytes]:
        """Start a process anew; the end of the one before is a hit of its own."""
        began = time.time()
        process = await self._stage.again(seat, failpoints)
        self._stage.note_hit("started anew for a case", seat.name, began)
        return process

    async def _thaw(self, seat: Seat, pid: int) -> None:
        await asyncio.sleep(1.3 * _LEASE_SECONDS)
        send_all([pid, *seat.children()], signal.SIGCONT)

    async def recovered(self) -> Verdict:
        """Wait until all that was handed in before has ended, and say how long that took."""
        began = time.monotonic()
        connection = await asyncpg.connect(self._stage.postgres.url)
        until = await connection.fetchrow("select now(), (select last_value from grns.events_seq)")
        left = 0

        async def is_done() -> bool:
            nonlocal left
            left = await connection.fetchval(_LEFT, *(until or ()))
            return bool(left <= 0)

        word = _SOUND
        try:
            await eventually(is_done, within_seconds=_RECOVER_SECONDS, every=0.1)
        except AssertionError:
            word = f"{left} tasks and rows of the log are left"
        finally:
            connection.terminate()
        return Verdict(word, time.monotonic() - began)


@dataclass
class Outcome:
    """What came of all cases, on all stages."""

    verdicts: dict[Case, Verdict] = field(default_factory=dict)
    report: Report = field(default_factory=Report)

    @property
    def is_sound(self) -> bool:
        """Say whether each case was reached and recovered from, and nothing was violated."""
        return self.report.is_clean and all(one.word == _SOUND for one in self.verdicts.values())

    @property
    def slowest(self) -> tuple[Case, float] | None:
        """The case whose recovery took longest, and how long that was."""
        took = [(case, one.seconds) for case, one in self.verdicts.items() if one.seconds is not None]
        return max(took, key=lambda one: one[1], default=None)


class Campaign:
    """Tries all cases, on as many stages side by side as it is given directories, and checks everything."""

    def __init__(self, cases: list[Case], chance: random.Random, console: Console) -> None:
        self._left = deque(cases)
        self._chance = chance
        self._console = console
        self._starting = asyncio.Lock()
        self._outcome = Outcome()

    async def run(self, directories: list[Path]) -> Outcome:
        """Run it."""
        with progress_on(self._console) as progress:
            bar = progress.add_task("", total=len(self._left))

            def tell(case: Case, verdict: Verdict) -> None:
                progress.update(bar, description=str(case), advance=1)
                self._outcome.verdicts[case] = verdict
                if verdict.word != _SOUND:
                    self._console.print(f"{case}: {verdict}")

            async with asyncio.TaskGroup() as stages:
                for directory in directories:
                    stages.create_task(self._on_stage(directory, tell))
        return self._outcome

    async def _on_stage(self, directory: Path, tell: Callable[[Case, Verdict], None]) -> None:
        """Try on one stage what is left, until nothing is, and let its checker look at it all."""
        stage = Stage(directory, rate=_RATE, lease_seconds=_LEASE_SECONDS)
        try:
            async with self._starting:  # a lease does not survive dozens of processes that start at once
                await stage.start(put_all, put_limits)
            tried = Range(stage, self._chance)
            while self._left:
                case = self._left.popleft()
                tell(case, await tried.try_out(case))
            await stage.dismiss("submitter")
            await pause_all(stage.postgres.url)
            for _ in range(2):  # what the last tasks wrote as they ended has to go out as well
                await tried.recovered()
            await stage.hear_out()
            report = await Checker(directory).check(stage.postgres.url)
            await show_violations(self._console, stage.postgres.url, report)
            self._outcome.report.add(report)
        finally:
            await stage.end()


def _show(console: Console, cases: list[Case], outcome: Outcome) -> None:
    report = outcome.report
    table = Table("moment", *ACTIONS)
    for moment in dict.fromkeys(case.moment for case in cases):
        cells = []
        for action in ACTIONS:
            of_it = [case for case in cases if (case.moment, case.action) == (moment, action)]
            cells.append(", ".join(f"#{case.hit} {outcome.verdicts[case]}" for case in of_it))
        table.add_row(str(moment), *cells)
    console.print(table)
    console.print(f"{len(cases)} cases, {report.tasks:,} tasks, {report.executions:,} executions")
    if outcome.slowest is not None:
        console.print("slowest recovery: {}, {:.1f} s".format(*outcome.slowest))
    console.print(violations(report))


def _part(said: str) -> tuple[int, int]:
    number, _, parts = said.partition("/")
    if not 1 <= int(number) <= int(parts):
        raise ValueError(said)
    return int(number), int(parts)


def main() -> int:
    """Read the options, run, and return the exit code."""
    parser = argparse.ArgumentParser(prog="make failpoints")
    parser.add_argument("--count", type=int, help="so many, drawn; all without it")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--only", default="", help="those whose names have one of these in them (a,b)")
    parser.add_argument("--part", type=_part, default=(1, 1), help="the first half is 1/2, the second is 2/2")
    parser.add_argument("--result", type=Path, help="a file to write the result to")
    parser.add_argument("--stages", type=int, default=1, help="so many side by side")
    parser.add_argument("--keep", action="store_true", help="keep journals and logs")
    options = parser.parse_args()
    chance = random.Random(options.seed)
    console = Console(width=None if sys.stdout.isatty() else 130)
    console.print(f"SEED={options.seed}")
    cases = [case for case in CASES if any(part in str(case) for part in options.only.split(","))]
    number, parts = options.part
    cases = cases[number - 1 :: parts]
    cases = chance.sample(cases, min(options.count or len(cases), len(cases)))
    cases.sort(key=CASES.index)
    os.environ["GRNS_CHAOS_CANCELLED"] = "0.2"
    directory = Path(tempfile.mkdtemp(prefix="grns-failpoints-"))
    directory.chmod(0o755)
    places = [directory / str(number) for number in range(options.stages)]
    for place in places:
        place.mkdir()
    outcome = None
    try:
        outcome = asyncio.run(Campaign(cases, chance, console).run(places))
    finally:
        if outcome is not None and outcome.is_sound and not options.keep:
            shutil.rmtree(directory, ignore_errors=True)
        else:
            console.print(f"journals and logs: {directory}")
    _show(console, cases, outcome)
    if options.result is not None:
        options.result.write_text(json.dumps(_result(options.seed, cases, outcome), indent=1) + "\n")
    return 0 if outcome.is_sound else 1


def _result(seed: int, cases: list[Case], outcome: Outcome) -> dict[str, object]:
    report = outcome.report
    return {
        "seed": seed,
        "cases_in_all": len(cases),
        "tasks": report.tasks,
        "executions": report.executions,
        "events": report.events,
        "taken_away_and_explained": dict(report.repeated),
        "violations": {name: len(details) for name, details in report.violations.items()},
        "slowest_recovery": str(outcome.slowest[0]) if outcome.slowest else None,
        "cases": {
            str(case): {"verdict": one.word, "recovered_seconds": one.seconds and round(one.seconds, 1)}
            for case, one in ((case, outcome.verdicts[case]) for case in cases)
        },
    }


if __name__ == "__main__":
    sys.exit(main())
