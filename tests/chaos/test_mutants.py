"""The tool that sows bugs: it believes a check that passes without a bug, and fails for the right reason."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from tests.chaos.bugs import MUTANTS, Edit, Mutant
from tests.chaos.checker import VIOLATIONS
from tests.chaos.mutants import CHECKS, Check, Trial, run, told_by_checker, told_by_pytest

_ROOT = Path(__file__).parent.parent.parent
_PLACE, _RIGHT = "grns/worker/sql/finish.sql", "t.lease_id = w.lease_id"
_GUARD = f"""
from pathlib import Path
if {_RIGHT!r} not in Path({_PLACE!r}).read_text():
    print("E   assert 'lost' == 'succeeded'")
    raise SystemExit(1)
"""
_BUG = Edit(_PLACE, _RIGHT, "true")


def tried(*mutants: Mutant) -> Trial:
    """Try mutants, and tell nobody."""
    trial = Trial(mutants, 0, Console(file=io.StringIO()))
    trial.run()
    return trial


@pytest.fixture
def guard(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check that takes no time: the code is as it is."""
    monkeypatch.setitem(CHECKS, "guard", Check(lambda _at, _seed: ("-c", _GUARD), told_by_pytest))


@pytest.mark.usefixtures("guard")
@pytest.mark.parametrize(
    ("word", "edit", "verdict"),
    [
        ("'lost' ==", _BUG, "found"),
        ("not drained", _BUG, "found for another reason"),
        ("'lost' ==", Edit(_PLACE, _RIGHT, f"{_RIGHT} and true"), "found nothing"),
    ],
)
def test_a_bug_is_found_for_the_reason_that_is_expected(word: str, edit: Edit, verdict: str) -> None:
    trial = tried(Mutant("one", "guard", (word,), (edit,)))
    assert trial.controls["guard"].verdict == "found nothing"
    assert trial.findings["one"].verdict == verdict
    assert trial.is_good == (verdict == "found")
    assert trial.findings["one"].seconds > 0


def test_a_check_that_fails_without_a_bug_finds_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CHECKS, "broken", Check(lambda _at, _seed: ("-c", "1 / 0"), told_by_pytest))
    trial = tried(Mutant("one", "broken", ("ZeroDivisionError",), (_BUG,)))
    assert not trial.is_good
    assert trial.findings == {}
    assert "ZeroDivisionError" in trial.controls["broken"].output


def test_a_check_that_takes_too_long_is_ended_and_what_it_printed_is_kept(tmp_path: Path) -> None:
    assert run(("-c", "print(1)"), tmp_path, 0, 30.0) == (0, "1\n", True)
    endless = "import signal; print(1, flush=True); signal.pause()"
    code, printed, is_in_time = run(("-c", endless), tmp_path, 0, 1.0)
    assert code != 0
    assert (printed[:2], is_in_time) == ("1\n", False)


def test_the_seed_is_passed_on() -> None:
    for name in ("storm", "points"):
        command = CHECKS[name].command(["a", "b"], 17)
        assert "--seed 17 --only a,b" in " ".join(command)


def test_what_did_not_even_start_tells_of_no_step_and_no_violation() -> None:
    traceback = "tests/interleavings/test_model_walks.py:9: in _finish\n"
    assert told_by_pytest(f"{traceback}E   assert 1 == 2\n") == ["in _finish", "assert 1 == 2"]
    assert told_by_pytest(f"{traceback}E   OSError: no room\n") == ["OSError: no room"]
    assert told_by_checker("violated: {'effect': 2} {}\nviolated (SEED=1)\n") == [
        "violated: {'effect': 2} {}"
    ]
    assert told_by_checker("AssertionError: not within 60 s; last seen: {'effect': 0}\n") == []


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_what_is_expected_of_a_check_it_can_say(mutant: Mutant) -> None:
    if mutant.check in ("storm", "points"):
        assert set(mutant.words) <= {*VIOLATIONS, "not drained"}
        return
    place, _, test = (mutant.at or "tests/interleavings/test_model_walks.py::").partition("::")
    text = (_ROOT / place).read_text()
    assert f"def {test}" in text
    for step in re.findall(r"in (_\w+)", " ".join(mutant.words)):
        assert f"def {step}(" in text
