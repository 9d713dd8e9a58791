"""What a run has measured, as tables and as a file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.bench.figure import Figure, Figures, said
from tests.bench.goal import Goal, Verdict
from tests.bench.interfaces.goal import P50, P95, asked, goals
from tests.bench.interfaces.size import Sizes
from tests.support.harness import quantile

_STYLES = {Verdict.HELD: "green", Verdict.MISSED: "red", Verdict.UNKNOWN: "dim"}
_DIGITS = 4


def show(console: Console, figures: Figures, sizes: Sizes, machine: Mapping[str, str]) -> None:
    """Print how long each question took, the goals, and where it was measured."""
    console.print(_times(figures))
    console.print(_others(figures))
    console.print(_goals(figures, sizes))
    for remark in figures.remarks:
        console.print(remark, markup=False, soft_wrap=True)
    console.print(", ".join(f"{name} {value}" for name, value in machine.items()), markup=False)


def has_missed(figures: Figures, sizes: Sizes) -> bool:
    """Say whether a goal is missed that was measured."""
    return any(goal.judge(figures) is Verdict.MISSED for goal in goals(sizes))


def dump(figures: Figures, sizes: Sizes, measured_at: str, machine: Mapping[str, str]) -> str:
    """Return all of it as JSON."""
    return json.dumps(
        {
            "measured_at": measured_at,
            "sizes": asdict(sizes),
            "machine": machine,
            "goals": [_judged(goal, figures) for goal in goals(sizes)],
            "remarks": figures.remarks,
            "figures": {name: _summed_up(figure) for name, figure in sorted(figures.by_name.items())},
        },
        indent=1,
        ensure_ascii=False,
    )


def _judged(goal: Goal, figures: Figures) -> dict[str, Any]:
    measured = goal.measured(figures)
    return {
        "what": goal.what,
        "goal": str(goal),
        "measured": None if measured is None else round(measured, _DIGITS),
        "verdict": goal.judge(figures).value,
    }


def _summed_up(figure: Figure) -> dict[str, Any]:
    numbers = {
        "samples": len(figure.samples),
        "p50": quantile(figure.samples, P50),
        "p95": quantile(figure.samples, P95),
        "most": max(figure.samples),
    }
    return {"unit": figure.unit, **{name: round(number, _DIGITS) for name, number in numbers.items()}}


def _times(figures: Figures) -> Table:
    """Return the table of questions, the slowest first."""
    table = Table("question", title="answers, in ms", title_justify="left")
    for heading in ("p50", "p95", "most", "in part"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, figure in sorted(asked(figures), key=lambda one: -quantile(one[1].samples, P95)):
        times = (quantile(figure.samples, P50), quantile(figure.samples, P95), max(figure.samples))
        partial = figures.by_name.get(f"partial.{name.partition('.')[2]}")
        share = "" if partial is None else f"{len(partial.samples) / len(figure.samples):.0%}"
        table.add_row(name, *(f"{one:.1f}" for one in times), share)
    return table


def _others(figures: Figures) -> Table:
    """Return the table of all other figures."""
    table = Table("figure", title="all else", title_justify="left")
    for heading in ("median", "least", "most"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, figure in figures.by_name.items():
        if name.partition(".")[0] in ("table", "cost", "redrive"):
            numbers = (figure.median, min(figure.samples), max(figure.samples))
            table.add_row(name, *(said(number, figure.unit) for number in numbers))
    return table


def _goals(figures: Figures, sizes: Sizes) -> Table:
    table = Table("what", title="goals", title_justify="left")
    for heading in ("goal", "measured", ""):
        table.add_column(heading, justify="right", no_wrap=True)
    for goal in goals(sizes):
        measured, verdict = goal.measured(figures), goal.judge(figures)
        table.add_row(
            goal.what, str(goal), "" if measured is None else said(measured, goal.unit),
            f"[{_STYLES[verdict]}]{verdict}[/]",
        )  # fmt: skip
    return table
