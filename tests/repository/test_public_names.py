"""The names of `import grns`, and what an `except` catches."""

from __future__ import annotations

import pytest

import grns


def test_dir_shows_the_public_names_and_nothing_else() -> None:
    assert dir(grns) == sorted(grns.__all__)
    assert all(getattr(grns, name) is not None for name in grns.__all__)


@pytest.mark.parametrize("signal", [grns.Retry("busy"), grns.Fail("gone")])
def test_except_grns_error_in_a_handler_does_not_swallow_how_the_task_ends(signal: Exception) -> None:
    assert isinstance(signal, grns.TaskSignal)
    assert not isinstance(signal, grns.GrnsError)


def test_wait_timeout_is_a_timeout_error() -> None:
    assert issubclass(grns.WaitTimeoutError, (grns.GrnsError, TimeoutError))
    with pytest.raises(TimeoutError):
        raise grns.WaitTimeoutError("no end after 1 s")
