"""What a run has measured, as tables."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from tests.bench.figure import Figure, Figures, said
from tests.bench.goal import Goal, Verdict, goals
from tests.bench.result import Result, change

_STYLES = {Verdict.HELD: "green", Verdict.MISSED: "red", Verdict.UNKNOWN: "dim"}


def show(console: Console, result: Result, last: Result | None) -> None:
    """Print the goals, all figures, and where they were measured; beside those of the last result."""
    figures, then = result.figures, last.figures if last is not None else Figures()
    table = Table("what", title="goals", title_justify="left")
    for heading in ("goal", "measured", "of the goal", "", "now/then"):
        table.add_column(heading, justify="right", no_wrap=True)
    for goal in goals(result.sizes):
        table.add_row(*_row_of_goal(goal, figures, then))
    console.print(table)
    table = Table("figure", title=f"medians of {result.sizes.rounds}", title_justify="left")
    for heading in ("median", "least", "most", "now/then"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, figure in figures.by_name.items():
        table.add_row(*_row_of_figure(name, figure, then))
    console.print(table)
    for remark in figures.remarks:
        console.print(remark, markup=False, soft_wrap=True)
    console.print(", ".join(f"{name} {value}" for name, value in result.machine.items()), markup=False)
    if last is not None:
        console.print(_compared(result, last), markup=False)


def _row_of_goal(goal: Goal, figures: Figures, then: Figures) -> list[str]:
    measured, verdict = goal.measured(figures), goal.judge(figures)
    return [
        goal.what,
        str(goal),
        "" if measured is None else said(measured, goal.unit),
        "" if measured is None or not goal.bound else f"{measured / goal.bound:.2f}",
        f"[{_STYLES[verdict]}]{verdict}[/]",
        _multiple(change(measured, goal.measured(then))),
    ]


def _row_of_figure(name: str, figure: Figure, then: Figures) -> list[str]:
    numbers = (figure.median, min(figure.samples), max(figure.samples))
    return [
        name,
        *(said(number, figure.unit) for number in numbers),
        _multiple(change(figure.median, then.median(name))),
    ]


def _multiple(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _compared(result: Result, last: Result) -> str:
    text = f"then: the committed result of {last.measured_at}"
    if last.sizes != result.sizes:
        text += f", with ROWS={last.sizes.rows} ROUNDS={last.sizes.rounds}"
    others = [name for name, value in result.machine.items() if last.machine.get(name) != value]
    return text + (f"; other than now: {', '.join(others)}" if others else "")
