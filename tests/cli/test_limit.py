"""`grns pool limit …`; no broker is needed for any of it."""

from __future__ import annotations

import pytest

from tests.support.cli import Call


def test_limit_is_put_shown_paused_and_deleted(cli: Call) -> None:
    made = cli("pool", "limit", "put", "openai", "--pool", "agents", "--rate", "500/1m", "--burst", "50")
    assert (made.code, made.out.strip()) == (0, "openai"), made.err
    tenant = ("--pool", "shop", "--type", "import_file", "--key", "customer.id", "--max", "5")
    assert cli("pool", "limit", "put", "tenant", *tenant).code == 0
    listed = cli("pool", "limit", "list").out
    assert "500/1m" in listed
    assert "shop:import_file by customer.id" in listed
    shown = cli("pool", "limit", "show", "openai", "-o", "json").json
    assert (shown["rate_count"], shown["rate_seconds"], shown["burst"]) == (500, 60, 50)
    assert cli("pool", "limit", "keys", "tenant").code == 0
    assert "outage" in cli("pool", "limit", "pause", "openai", "--reason", "outage").out
    assert "paused" in cli("pool", "limit", "list").out
    assert "active" in cli("pool", "limit", "resume", "openai").out
    assert "would delete limit openai" in cli("pool", "limit", "delete", "openai", "--dry-run").err
    assert cli("pool", "limit", "delete", "openai", "--yes").code == 0
    assert "grns pool limit list" in cli("pool", "limit", "show", "openai").err


@pytest.mark.parametrize(
    ("options", "words"),
    [((), "pass a maximum, a rate, or both"), (("--rate", "fast"), "500/1m"), (("--max", "0"), "--max")],
)
def test_what_cannot_be_is_refused(cli: Call, options: tuple[str, ...], words: str) -> None:
    refused = cli("pool", "limit", "put", "openai", "--pool", "agents", *options)
    assert refused.code == 2
    assert words in refused.err
