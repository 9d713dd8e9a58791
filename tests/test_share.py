"""Which tests are run where only some are: as many as asked for, others with each seed, in the end all."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests import share


def chosen(part: float, seed: str) -> tuple[set[str], set[str]]:
    """Return which of a thousand tests are run, and which are told to be left out."""
    left_out: list[Any] = []
    config: Any = SimpleNamespace(
        getoption={"share": part, "seed": seed}.__getitem__,
        hook=SimpleNamespace(pytest_deselected=lambda items: left_out.extend(items)),
    )
    items: list[Any] = [SimpleNamespace(nodeid=f"tests/test_it.py::test[{number}]") for number in range(1000)]
    share.pytest_collection_modifyitems(config, items)
    return {item.nodeid for item in items}, {item.nodeid for item in left_out}


def test_a_share_is_as_large_as_asked_for_and_each_test_is_in_some() -> None:
    runs = [chosen(0.4, str(seed)) for seed in range(30)]
    for run, left_out in runs:
        assert 330 < len(run) < 470
        assert len(run) + len(left_out) == 1000
        assert not run & left_out
    assert len(set.union(*(run for run, _ in runs))) == 1000
    assert chosen(0.4, "3") == runs[3]
    assert chosen(1.0, "3") == (runs[0][0] | runs[0][1], set())
