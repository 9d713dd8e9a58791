"""Pictures of a result, as PNG and SVG: `python -m tests.bench.plot RESULT DIRECTORY`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.bench.figure import Figures
from tests.bench.result import Result, read

_WIDTH, _HEIGHT, _DPI = 8.0, 3.0, 110
_OURS, _LIGHT, _OTHERS, _LIMIT = "#1f6feb", "#93bdf8", "#9aa4b0", "#d0d7de"
_STYLE: dict[Any, Any] = {  # its keys are words of matplotlib, which need not be installed
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e9ed",
    "svg.hashsalt": "grns",  # the same result is the same file
}
_BARS = {"bare.best": "the bare loop", "drain.rate": "grns, drained", "whole_way.rate": "grns, the whole way"}


def draw(result: Result, directory: Path) -> list[Path]:
    """Draw what there is to be drawn, and return the files; needs matplotlib."""
    import matplotlib

    directory.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    there = result.figures.curves.keys() | result.figures.by_name.keys()
    with matplotlib.rc_context(_STYLE):
        for name, (needs, drawing) in _DRAWINGS.items():
            if there.intersection(needs):
                paths += _saved(drawing(result), directory, name)
    return paths


def _saved(picture: Any, directory: Path, name: str) -> list[Path]:
    picture.tight_layout()
    png, svg = directory / f"{name}.png", directory / f"{name}.svg"
    picture.savefig(png, dpi=_DPI)
    picture.savefig(svg, metadata={"Date": None})
    return [png, svg]


def _panels(count: int, ratios: tuple[int, ...] = (1,)) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    picture = Figure(figsize=(_WIDTH, _HEIGHT))
    return picture, picture.subplots(1, count, width_ratios=ratios)


def _rate_over_time(result: Result) -> Any:
    picture, axes = _panels(1)
    axes.plot(*zip(*result.figures.curves["whole_way"], strict=True), color=_OURS)
    axes.set(xlabel="seconds since the first claim", ylabel="tasks finished / s", ylim=(0, None))
    axes.set_title("The whole way: submitted, run, finished, every event relayed", loc="left")
    return picture


def _steadiness(result: Result) -> Any:
    figures, sizes = result.figures, result.sizes
    picture, (left, right) = _panels(2, (1, 2))
    for name, queued, color in (("small", sizes.small_backlog, _LIGHT), ("big", sizes.big_backlog, _OURS)):
        left.bar(f"{queued:,}", figures.median(f"backlog.{name}") or 0, color=color)
    left.set(xlabel="tasks that are queued", ylabel="tasks / s")
    left.set_title("A long backlog", loc="left")
    for name, label, color in (
        ("snapshot", "all succeed", _OURS),
        ("snapshot_retries", "20 % fail once", _LIGHT),
    ):
        if name in figures.curves:
            right.plot(*zip(*figures.curves[name], strict=True), color=color, label=label)
    right.set(xlabel="seconds", ylim=(0, None))
    right.set_title("An old snapshot is held open throughout", loc="left")
    right.legend(frameon=False)
    return picture


def _latency(result: Result) -> Any:
    figures = result.figures
    picture, axes = _panels(1)
    for name, label, color in (
        ("latency.start", "handler start", _OURS),
        ("latency.finish", "finished", _LIGHT),
        ("latency.visible", "seen to be finished", _OTHERS),
    ):
        if name in figures.curves:
            axes.plot(*zip(*figures.curves[name], strict=True), color=color, label=label)
    longest = max(figures.median(f"latency.{name}.p99") or 0 for name in ("start", "finish", "visible"))
    axes.set(
        xlabel="ms since the submit began", ylabel="share of tasks", xlim=(0, 1.3 * longest), ylim=(0, 1)
    )
    axes.set_title("From submit, on an idle system", loc="left")
    axes.legend(frameon=False, loc="lower right")
    return picture


def _against_peers(result: Result) -> Any:
    picture, axes = _panels(1)
    labels = bars(result.figures)
    rates = sorted((rate, name) for name in labels if (rate := result.figures.median(name)) is not None)
    for place, (rate, name) in enumerate(rates):
        axes.barh(place, rate, color=_LIMIT if name == "bare.best" else _OURS if name in _BARS else _OTHERS)
        axes.text(rate, place, f" {rate:,.0f}", va="center")
    axes.set_yticks(range(len(rates)), [labels[name] for _, name in rates])
    axes.set(xlabel="no-op tasks of 200 bytes / s, one worker process")
    axes.margins(x=0.1)
    axes.grid(visible=False, axis="y")
    return picture


def bars(figures: Figures) -> dict[str, str]:
    """Return what is compared with the peers, and them: labels by the names of the figures."""
    peers = [name for name in figures.by_name if name.startswith("peers.")]
    return {**_BARS, **{name: name.removeprefix("peers.").replace("_", " ") for name in peers}}


# By file name: what it needs one of, and how it is drawn.
_DRAWINGS: dict[str, tuple[tuple[str, ...], Callable[[Result], Any]]] = {
    "rate-over-time": (("whole_way",), _rate_over_time),
    "steadiness": (("backlog.big", "snapshot", "snapshot_retries"), _steadiness),
    "latency": (("latency.start",), _latency),
    "against-peers": (tuple(_BARS), _against_peers),
}


if __name__ == "__main__":
    draw(read(Path(sys.argv[1])), Path(sys.argv[2]))
