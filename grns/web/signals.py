"""What this process' own metrics tell of the daemons that run in it."""

from __future__ import annotations

import re
from dataclasses import dataclass

_SAMPLE = re.compile(r"^(grns_[a-z_]+)(?:\{[^}]*\})? ([0-9.eE+-]+)$", re.MULTILINE)
# A gauge is zero also where nobody sets it: only where something was published or counted it says anything.
_SHOWN = (
    ("Relay lag", "grns_relay_lag_seconds", "grns_messages_published_total", "s"),
    ("Awaiting the broker", "grns_relay_in_flight", "grns_messages_published_total", ""),
    ("Counter lag", "grns_counter_lag_seconds", "grns_log_rows_counted_total", "s"),
    ("Consumer pending", "grns_consumer_pending", "grns_consumer_pending", ""),
)


@dataclass(frozen=True, slots=True)
class Signal:
    """One number of a daemon's."""

    name: str
    value: float
    unit: str


def signals(exposition: str) -> list[Signal]:
    """Return what is known, of metrics as Prometheus reads them; samples of one name are added."""
    found: dict[str, float] = {}
    for name, value in _SAMPLE.findall(exposition):
        found[name] = found.get(name, 0.0) + float(value)
    return [
        Signal(title, found[name], unit)
        for title, name, witness, unit in _SHOWN
        if name in found and found.get(witness)
    ]
