"""Who does the faults, in the small: a seed draws the same ones, however long each takes to heal."""

from __future__ import annotations

import random
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.chaos import nemesis
from tests.chaos.faults import Fault, Hit
from tests.chaos.stage import Stage


async def _drawn(monkeypatch: pytest.MonkeyPatch, heals_in: float) -> list[tuple[str, float]]:
    """Return which faults a storm of a moment did, and what each drew for itself."""
    done = []

    def fault(name: str) -> Fault:
        async def inject(_stage: Stage, chance: random.Random) -> Hit:
            done.append((name, chance.random()))
            return Hit("nobody", seconds=heals_in)

        return Fault(name, inject)

    monkeypatch.setattr(nemesis, "FAULTS", tuple(fault(str(number)) for number in range(20)))
    stage = cast(Any, SimpleNamespace(brokers=[None], disks=[], note_hit=lambda *_, **__: None))
    await nemesis.Nemesis(stage, 7, per_second=300).run(time.monotonic() + 0.4)
    return done


async def test_the_same_seed_draws_the_same_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    quick, slow = await _drawn(monkeypatch, 0.0), await _drawn(monkeypatch, 0.08)
    assert len(quick) > len(slow) > 4, "where too many last, the next ones are left out"
    rest = iter(quick)
    assert all(one in rest for one in slow[:10]), "and those behind them stay what they are"
