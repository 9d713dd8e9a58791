"""`grns pool budget …`; no broker is needed for any of it."""

from __future__ import annotations

import pytest

from tests.support.cli import Call


def test_a_budget_is_put_shown_allowed_and_deleted(cli: Call) -> None:
    made = cli("pool", "budget", "put", "writing", "--pool", "writers", "--cost", "200", "--action", "ask")
    assert made.code == 0, made.err
    assert "$0.00 of $200.00" in made.out
    assert cli("pool", "budget", "put", "tokens", "--period", "day", "--tokens", "5000").code == 0
    listed = cli("pool", "budget", "list").out
    assert "writers" in listed
    assert "(all)" in listed
    more = cli("pool", "budget", "allow", "writing", "--cost", "50", "-o", "json").json
    assert (more["max_cost"], more["extra_cost"], more["action"]) == (200.0, 50.0, "ask")
    assert "$0.00 of $250.00" in cli("pool", "budget", "show", "writing").out
    assert "would delete budget writing" in cli("pool", "budget", "delete", "writing", "--dry-run").err
    assert cli("pool", "budget", "delete", "writing", "--yes").code == 0
    assert "grns pool budget list" in cli("pool", "budget", "show", "writing").err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "pass a cost, a number of tokens, or both"),
        (("--cost", "0"), "--cost"),
        (("--tokens", "many"), "--tokens"),
        (("--cost", "1", "--action", "stop"), "--action"),
    ],
)
def test_what_cannot_be_is_refused(cli: Call, options: tuple[str, ...], words: str) -> None:
    refused = cli("pool", "budget", "put", "writing", *options)
    assert refused.code == 2
    assert words in refused.err
