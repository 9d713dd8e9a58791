"""What this process' own metrics tell of the daemons that run in it."""

from __future__ import annotations

import re
from dataclasses import dataclass

_SAMPLE = re.compile(r"^(grns_[a-z_]+)(?:\{[^}]*\})? ([0-9.eE+-]+)$", re.MULTILINE)
# What each is called, its metric, and one that has to be above zero for it: a gauge is zero also where nobody
# sets it. Of one name the first that is known is shown: what was measured, then what a daemon tells itself.
_MEASURED = "grns_measured_timestamp_seconds"
_SHOWN = (
    ("Relay lag", "grns_unpublished_oldest_seconds", _MEASURED, "s"),
    ("Relay lag", "grns_relay_lag_seconds", "grns_messages_published_total", "s"),
    ("Awaiting the broker", "grns_relay_in_flight", "grns_messages_published_total", ""),
    ("Stats lag", "grns_uncounted_oldest_seconds", _MEASURED, "s"),
    ("Stats lag", "grns_stats_lag_seconds", "grns_log_rows_counted_total", "s"),
    ("Oldest overdue", "grns_due_oldest_seconds", _MEASURED, "s"),
    ("Consumers pending", "grns_consumer_pending_messages", _MEASURED, ""),
)


@dataclass(frozen=True, slots=True)
class KeyFigure:
    """One number of a daemon's."""

    name: str
    value: float
    unit: str


def signals(exposition: str) -> list[KeyFigure]:
    """Return what is known, of metrics as Prometheus reads them; samples of one name are added."""
    found: dict[str, float] = {}
    for name, value in _SAMPLE.findall(exposition):
        found[name] = found.get(name, 0.0) + float(value)
    known: dict[str, KeyFigure] = {}
    for title, name, witness, unit in _SHOWN:
        if name in found and found.get(witness):
            known.setdefault(title, KeyFigure(title, found[name], unit))
    return list(known.values())
