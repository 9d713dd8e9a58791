"""Hands each fact to the leaves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from grns.telemetry.fact import Fact

Emit = Callable[[Fact], None]


class Leaf(Protocol):
    """Something that reads facts: a log, metrics, a test."""

    def read(self, fact: Fact) -> None:
        """Take note of one fact. Must not block and must not raise."""


class Telemetry:
    """Emits facts to its leaves. Passed to whoever has something to tell."""

    def __init__(self, *leaves: Leaf) -> None:
        self._readers = [leaf.read for leaf in leaves]

    def emit(self, fact: Fact) -> None:
        """Tell all leaves."""
        for read in self._readers:
            read(fact)
