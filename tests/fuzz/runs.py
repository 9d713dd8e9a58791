"""Runs: many inputs judged, and what became of them."""

from __future__ import annotations

import gc
import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.fuzz.inputs import BUNCH, Sample, bunches
from tests.fuzz.verdict import judge

# What one input may cost, its five readings together; the largest have half a megabyte.
CPU_SECONDS = 1.0
PART = 25_000
_AT_ONCE = 1_000


@dataclass
class Tally:
    """What became of all inputs of a run."""

    codes: Counter[str] = field(default_factory=Counter)
    forms: Counter[str] = field(default_factory=Counter)
    slowest_seconds: float = 0.0
    slowest_bytes: int = 0

    def __add__(self, other: Tally) -> Tally:
        """Return both together."""
        slowest = max(self, other, key=lambda tally: tally.slowest_seconds)
        return Tally(
            self.codes + other.codes,
            self.forms + other.forms,
            slowest.slowest_seconds,
            slowest.slowest_bytes,
        )

    def add(self, sample: Sample) -> None:
        """Judge one input, and how long that took."""
        code, seconds = _timed(sample)
        if seconds > CPU_SECONDS / 2:  # on a busy machine, that of others may be counted too
            seconds = min(seconds, _timed(sample)[1])
        self.codes[code] += 1
        self.forms[sample.form] += 1
        if seconds > self.slowest_seconds:
            self.slowest_seconds, self.slowest_bytes = seconds, len(sample.body)
        assert seconds < CPU_SECONDS, f"{seconds:.2f} s of CPU time for {len(sample.body)} bytes"


def _timed(sample: Sample) -> tuple[str, float]:
    began = time.thread_time()
    try:
        code = judge(sample)
    except Exception as error:
        error.add_note(f"{sample.form} on {sample.subject!r}: {sample.body[:2000]!r}")
        raise
    return code, time.thread_time() - began


def run(tally: Tally, examples: int, first_seed: int) -> None:
    """Judge inputs until there are so many; those of one seed are the same each time."""
    while (left := examples - tally.codes.total()) > 0:
        with undisturbed():
            _probe(tally, min(-(-left // BUNCH), _AT_ONCE), first_seed)
        first_seed += 1


def _probe(tally: Tally, examples: int, number: int) -> None:
    @seed(number)
    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(bunches)
    def probe(samples: tuple[Sample, ...]) -> None:
        for sample in samples:
            tally.add(sample)

    probe()


@contextmanager
def undisturbed() -> Iterator[None]:
    """Keep the collector from walking through all that there is while something else is measured."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def part(number: int) -> Tally:
    """Judge a part of a long run, in a process of its own: hypothesis keeps what it has seen."""
    os.nice(10)  # the machine is also somebody else's
    tally = Tally()
    run(tally, PART, number)
    return tally
