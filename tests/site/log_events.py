"""The page of all log events, from the signals and from the calls of loggers in the code."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator

from grns.telemetry import service_signals, task_signals
from grns.telemetry.signal import LEVELS, Signal
from tests.site.text import GENERATED, code, table
from tests.support.harness import ROOT

_INTRODUCTION = """
A process writes one line per event to stderr: JSON, or text on a terminal (`GRNS_LOG_FORMAT`). Each
line has `event`, `level`, `timestamp` and `service`, and lines about an attempt have `task_id`,
`attempt` and `trace_id`. `GRNS_LOG_LEVEL` sets the lowest level. While a problem lasts, a throttled
event is logged at growing intervals; `suppressed_repeats` counts the lines left out.

"""

Row = tuple[str, str, str, str]


def signal_kinds() -> list[type[Signal]]:
    """Return all kinds of signals."""
    return [
        value
        for module in (task_signals, service_signals)
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Signal) and value is not Signal
    ]


def page() -> str:
    """Return the page."""
    rows = sorted({*map(_of_signal, signal_kinds()), *_of_calls()})
    return f"# Log events\n\n{GENERATED}{_INTRODUCTION}" + table(("event", "level", "fields", ""), rows)


def _row(event: str, level: str, fields: list[str], *, is_throttled: bool) -> Row:
    return code(event), level, ", ".join(map(code, fields)), "throttled" if is_throttled else ""


def _of_signal(kind: type[Signal]) -> Row:
    fields = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    return _row(kind.event, kind.level, fields, is_throttled=kind.throttle_by is not None)


def _of_calls() -> Iterator[Row]:
    """Yield the events that modules write themselves: `_log.info("event", field=…)`."""
    for path in sorted((ROOT / "grns").rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text())):
            match call:
                case ast.Call(ast.Attribute(ast.Name("_log"), level), [ast.Constant(str(event))], keywords):
                    assert level in LEVELS, f"{path}: _log.{level}"
                    fields = [keyword.arg or "**" for keyword in keywords]
                    is_throttled = "_throttle" in fields
                    yield _row(
                        event,
                        level,
                        [name for name in fields if name != "_throttle"],
                        is_throttled=is_throttled,
                    )
