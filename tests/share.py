"""`--share 0.5 --seed 7`: some of the tests, others with each seed; the same ones with the same seed."""

from __future__ import annotations

import hashlib

import pytest

_ALL = 1.0


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take the options."""
    parser.addoption("--share", type=float, default=_ALL, help="which share of the tests is run (1.0)")
    parser.addoption("--seed", default="0", help="which of them")


def pytest_report_header(config: pytest.Config) -> str | None:
    """Tell how to run the same again."""
    share = config.getoption("share")
    return None if share >= _ALL else f"some of the tests: --share {share} --seed {config.getoption('seed')}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the others."""
    share, seed = config.getoption("share"), config.getoption("seed")
    if share >= _ALL:
        return
    left_out = [item for item in items if _place(item, seed) >= share]
    items[:] = [item for item in items if _place(item, seed) < share]
    config.hook.pytest_deselected(items=left_out)


def _place(item: pytest.Item, seed: str) -> float:
    """Return a number from 0 to 1 that is a test's own, with a seed."""
    return int.from_bytes(hashlib.sha256(f"{seed} {item.nodeid}".encode()).digest()[:4]) / 2**32
