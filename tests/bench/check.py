"""The short bench of CI: the whole way against the bare loop, and both against what was committed.

A ratio of two figures of one run says little of the machine and much of the code: one of rates, and one of
the CPU time of a task, which scatters less. Full runs measure them in just the same way.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.bench import bare, whole_way
from tests.bench.figure import MICROSECONDS, TASKS, TIMES, Figures, said
from tests.bench.ground import Ground
from tests.bench.result import NoResult, read
from tests.bench.size import Sizes

_ROWS, _WARM = 4000, 400


@dataclass(frozen=True)
class Ratio:
    """A figure of the whole way against that of the bare loop, and its bound as a multiple of what it was."""

    what: str
    figure: str
    against: str
    unit: str
    allowed: float

    def is_held(self, now: float, then: float) -> bool:
        """Say whether the ratio is near enough to the committed one, or better."""
        return now >= self.allowed * then if self.allowed < 1 else now <= self.allowed * then


RATIOS = (
    Ratio("rate", "check.whole_way", "check.bare", TASKS, 0.6),
    Ratio("CPU", "check.whole_way_cpu", "check.bare_cpu", MICROSECONDS, 1.25),
)


async def measure(ground: Ground, _sizes: Sizes, figures: Figures) -> None:
    """Measure one round, always of the same size."""
    rate, cpu = RATIOS
    async with ground.stage() as stage:
        await whole_way.begin(stage, _WARM)
        passage = await whole_way.passed(stage, _ROWS)
    figures.note(rate.figure, passage.rate, TASKS)
    figures.note(cpu.figure, 1e6 * sum(passage.cpu_seconds.values()) / _ROWS, MICROSECONDS)
    best_rate, its_cpu = max([await bare.measured(ground, _ROWS, batch) for batch in bare.BATCHES])
    figures.note(rate.against, best_rate, TASKS)
    figures.note(cpu.against, its_cpu, MICROSECONDS)


def committed_ratios(path: Path) -> list[float]:
    """Return each of `RATIOS` as it was committed; `NoResult` where nothing says so."""
    figures = read(path).figures
    ratios = [figures.ratio(ratio.figure, ratio.against) for ratio in RATIOS]
    if None in ratios:
        raise NoResult(f"{path} is of a run that left the short bench out")
    return [ratio for ratio in ratios if ratio is not None]


def judge(now: Figures, committed: list[float]) -> tuple[bool, list[str]]:
    """Say, also in a line for each ratio, whether the whole way is still fast enough for the bare loop."""
    are_held, lines = True, []
    for ratio, then in zip(RATIOS, committed, strict=True):
        found = now.ratio(ratio.figure, ratio.against)
        if found is None:
            return False, ["nothing was measured"]
        is_held = ratio.is_held(found, then)
        are_held &= is_held
        ours, bare_loop = (
            said(now.by_name[name].median, ratio.unit) for name in (ratio.figure, ratio.against)
        )
        lines.append(
            f"{ratio.what} {'held' if is_held else 'missed'}: the whole way has {said(found, TIMES)} the bare"
            f" loop's ({ours}, {bare_loop}), {said(then, TIMES)} when it was committed;"
            f" bound: {'at least' if ratio.allowed < 1 else 'at most'} {said(ratio.allowed * then, TIMES)}"
        )
    return are_held, lines
