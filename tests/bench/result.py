"""A run as a file, and two runs side by side."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.bench.figure import Figure, Figures
from tests.bench.goal import Goal, goals
from tests.bench.size import Sizes

COMMITTED = Path(__file__).parent / "results" / "bench.json"
_DIGITS = 4


class NoResult(Exception):
    """There is no such file, or it is no result of this bench."""


@dataclass(frozen=True)
class Result:
    """What was measured, how much of it, when, and on what machine."""

    figures: Figures
    sizes: Sizes
    measured_at: str
    machine: dict[str, str]

    def dump(self) -> str:
        """Return it as the file has it: with the goals as they were judged, for those who read only that."""
        figures = self.figures
        return json.dumps(
            {
                "measured_at": self.measured_at,
                "sizes": asdict(self.sizes),
                "machine": self.machine,
                "goals": [_judged(goal, figures) for goal in goals(self.sizes)],
                "remarks": figures.remarks,
                "figures": {
                    name: {
                        "unit": figure.unit,
                        "median": round(figure.median, _DIGITS),
                        "samples": [round(sample, _DIGITS) for sample in figure.samples],
                    }
                    for name, figure in sorted(figures.by_name.items())
                },
                "curves": {
                    name: [[round(number, _DIGITS) for number in point] for point in curve]
                    for name, curve in figures.curves.items()
                },
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


def read(path: Path) -> Result:
    """Read a file; `NoResult` says what is wrong with it."""
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise NoResult(f"there is no {path}") from error
    except (OSError, ValueError) as error:
        raise NoResult(f"cannot read {path}: {error}") from error
    try:
        figures = Figures()
        for name, figure in said["figures"].items():
            figures.by_name[name] = Figure(figure["unit"], [float(sample) for sample in figure["samples"]])
        for name, curve in said["curves"].items():
            figures.trace(name, [(float(x), float(y)) for x, y in curve])
        figures.remarks += said["remarks"]
        return Result(figures, Sizes(**said["sizes"]), said["measured_at"], dict(said["machine"]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise NoResult(f"{path} is no result of this bench: {type(error).__name__}: {error}") from error


def change(now: float | None, then: float | None) -> float | None:
    """Return what is measured now as a multiple of what it was then, None where one is missing."""
    return now / then if now is not None and then else None
