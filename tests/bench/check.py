"""The short bench of CI: the whole way against the bare loop, and both against what was committed.

A ratio of two figures of one run says little of the machine and much of the code. Full runs measure it in
just the same way, so that their result can be held against.
"""

from __future__ import annotations

from pathlib import Path

from tests.bench import bare, whole_way
from tests.bench.figure import SHARE, TASKS, Figures, said
from tests.bench.ground import Ground
from tests.bench.result import NoResult, read
from tests.bench.size import Sizes

WHOLE_WAY, BARE = "check.whole_way", "check.bare"
LEAST_SHARE = 0.6
_ROWS, _WARM = 4000, 400


async def measure(ground: Ground, _sizes: Sizes, figures: Figures) -> None:
    """Measure one round, always of the same size."""
    async with ground.stage() as stage:
        await whole_way.begin(stage, _WARM)
        figures.note(WHOLE_WAY, (await whole_way.passed(stage, _ROWS)).rate, TASKS)
    rates = [await bare.rate(ground, _ROWS, batch) for batch in bare.BATCHES]
    figures.note(BARE, max(rates), TASKS)


def committed_ratio(path: Path) -> float:
    """Return what share of the bare loop's rate the whole way had; `NoResult` where nothing says so."""
    ratio = read(path).figures.ratio(WHOLE_WAY, BARE)
    if ratio is None:
        raise NoResult(f"{path} is of a run that left the short bench out")
    return ratio


def judge(now: Figures, committed: float) -> tuple[bool, str]:
    """Say, also in one line, whether the whole way is still fast enough for the bare loop."""
    ratio, least = now.ratio(WHOLE_WAY, BARE), LEAST_SHARE * committed
    if ratio is None:
        return False, "nothing was measured"
    whole_way_rate, bare_rate = (said(now.by_name[name].median, TASKS) for name in (WHOLE_WAY, BARE))
    return ratio >= least, (
        f"{'fast enough' if ratio >= least else 'too slow'}: the whole way has {said(ratio, SHARE)} of the"
        f" bare loop's rate ({whole_way_rate} of {bare_rate}), {said(committed, SHARE)} when it was"
        f" committed; at least {said(least, SHARE)} is asked for"
    )
