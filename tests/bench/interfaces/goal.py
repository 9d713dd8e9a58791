"""The goals of API, dashboard and redrive, and the figures that they are held against."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from grns.web.app import PAGES
from tests.bench.figure import COUNT, MILLISECONDS, SHARE, Figure, Figures
from tests.bench.goal import Goal
from tests.bench.interfaces.ask import API, WEB
from tests.bench.interfaces.question import LOOKING, STREAMS
from tests.bench.interfaces.size import Sizes
from tests.support.harness import quantile

_API_MILLISECONDS, _WEB_MILLISECONDS = 50.0, 100.0
# No list, no count: all that `grns doctor` looks for, in Postgres and at the broker, kept for some seconds.
_EXAMINATION, _EXAMINATION_MILLISECONDS = "examine", 250.0
_COST = 0.05
# Who is late makes up for a second, and a batch is moved whole: in ten seconds eleven's, and one batch.
_KEPT, _PEAK = 0.95, 1.12
P50, P95 = 0.5, 0.95
_WORST = "worst"


def goals(sizes: Sizes) -> Sequence[Goal]:
    """Return all goals: of each route and each page the question that was answered the slowest."""
    return [*_table(), *_answers(sizes), *_cost(), *_redrive(sizes)]


def settle(figures: Figures) -> None:
    """Note of each route and each page how long the slowest of its questions took, at the 95th percentile."""
    worst: dict[str, float] = {}
    for name, figure in asked(figures):
        route = name.partition(":")[0]
        worst[route] = max(worst.get(route, 0.0), quantile(figure.samples, P95))
    for route, milliseconds in worst.items():
        figures.by_name[f"{_WORST}.{route}"] = Figure(MILLISECONDS, [milliseconds])


def asked(figures: Figures) -> list[tuple[str, Figure]]:
    """Return the figures that are answers' times, by the names of questions."""
    return [
        (name, figure) for name, figure in figures.by_name.items() if name.partition(".")[0] in (API, WEB)
    ]


def _table() -> Iterator[Goal]:
    yield Goal(
        what="the table: invariants violated", figure="table.violations", bound=0, unit=COUNT, is_most=True
    )


def _answers(sizes: Sizes) -> Iterator[Goal]:
    rows = f"{sizes.rows:,} tasks"
    looks = [(API, name, _API_MILLISECONDS) for name in LOOKING if name != _EXAMINATION]
    looks.append((API, _EXAMINATION, _EXAMINATION_MILLISECONDS))
    looks += [
        (WEB, page.name, _WEB_MILLISECONDS)
        for page in PAGES
        if page.method == "GET" and page.name not in STREAMS
    ]
    for kind, name, bound in looks:
        yield Goal(
            what=f"{name}, p95 with {rows}", figure=f"{_WORST}.{kind}.{name}", bound=bound,
            unit=MILLISECONDS, is_most=True,
        )  # fmt: skip


def _cost() -> Iterator[Goal]:
    yield Goal(
        what="what the API costs the workers of their rate", figure="cost.share", bound=_COST, unit=SHARE,
        is_most=True,
    )  # fmt: skip


def _redrive(sizes: Sizes) -> Iterator[Goal]:
    what = f"redrive of {sizes.dead:,} at {sizes.rate:,}/s, killed meanwhile"
    yield Goal(what=f"{what}: once each", figure="redrive.share", bound=1.0, unit=SHARE)
    yield Goal(
        what="the same: twice, not, others, skipped, ends but one", figure="redrive.wrong", bound=0,
        unit=COUNT, is_most=True,
    )  # fmt: skip
    yield Goal(
        what="the same: of its rate, while a runner lives", figure="redrive.kept", bound=_KEPT, unit=SHARE
    )
    yield Goal(
        what="the same: most of its rate in ten seconds", figure="redrive.peak", bound=_PEAK, unit=SHARE,
        is_most=True,
    )  # fmt: skip
    yield Goal(
        what="afterwards: invariants violated", figure="redrive.violations", bound=0, unit=COUNT, is_most=True
    )
