"""The page of all log events, from the signals themselves."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil

from grns.telemetry import facts
from grns.telemetry.fact import Fact
from tests.site.text import GENERATED, code, table

_INTRODUCTION = """
A process writes one line per event to stderr: JSON, or text on a terminal (`GRNS_LOG_FORMAT`). Each
line has `event`, `level`, `timestamp` and `service`, and lines about an attempt have `task_id`,
`attempt` and `trace_id`. `GRNS_LOG_LEVEL` sets the lowest level. While a problem lasts, a throttled
event is logged at growing intervals; `untold_repeats` counts the lines left out.

"""


def every_fact() -> list[type[Fact]]:
    """Return all signals that grns emits."""
    found = []
    for info in pkgutil.iter_modules(facts.__path__):
        module = importlib.import_module(f"{facts.__name__}.{info.name}")
        found += [
            value
            for value in vars(module).values()
            if isinstance(value, type) and issubclass(value, Fact) and value.__module__ == module.__name__
        ]
    return found


def page() -> str:
    """Return the page."""
    rows = sorted({_row(kind) for kind in every_fact()})
    head = ("event", "level", "fields", "")
    return f"# Log events\n\n{GENERATED}{_INTRODUCTION}" + table(head, rows)


def _row(kind: type[Fact]) -> tuple[str, str, str, str]:
    fields = ", ".join(code(field.name) for field in dataclasses.fields(kind))  # type: ignore[arg-type]
    level = inspect.getattr_static(kind, "level")
    event = inspect.getattr_static(kind, "event")
    return (
        code(event) if isinstance(event, str) else "",
        level if isinstance(level, str) else "varies",
        fields,
        "throttled" if kind.repeats else "",
    )
