"""Which faults can cost an attempt its lease, and from when until when: what counts as an explanation."""

from __future__ import annotations

from dataclasses import dataclass

# Clocks of one machine, read one after another.
_NEAR_SECONDS = 0.2
# A connection that is cut costs no lease, for renewals are tried again; but the answer to a claim may go
# unheard with it, and the process die before it has asked again.
_ANSWER_SECONDS = 1.0
_BLINKS = ("network to Postgres: cut", "Postgres: backends terminated")
# Those of the broker cost none: leases are renewed through Postgres alone.
_HARMLESS = ("NATS", "network to NATS", "daemon", "submitter")
# How long they are felt afterwards, in seconds: starting again, reconnecting. What a stranger has locked
# cannot be renewed meanwhile.
_AFTERWARDS = (
    ("Postgres: a stranger", 1.0),
    ("keeper", 4.0),
    ("Postgres", 3.0),
    ("network to Postgres", 2.0),
)
_USUALLY = 1.0


@dataclass(frozen=True)
class Harm:
    """A time in which somebody was hit so that attempts may be lost."""

    begin: float
    end: float
    is_blink: bool = False

    def explains(self, claimed_at: float, until: float) -> bool:
        """Say whether it lies between an attempt's claim and the end of its lease."""
        if self.is_blink:
            until = min(until, claimed_at + _ANSWER_SECONDS)
        return self.begin <= until + _NEAR_SECONDS and self.end >= claimed_at - _NEAR_SECONDS


def harm_of(fault: str, begin: float, end: float) -> Harm | None:
    """Return the harm that a fault did; None for what can cost no lease."""
    if fault.startswith(_HARMLESS):
        return None
    if fault.startswith(_BLINKS):
        return Harm(begin, end, is_blink=True)
    felt = next((seconds for name, seconds in _AFTERWARDS if fault.startswith(name)), _USUALLY)
    return Harm(begin, end + felt)
