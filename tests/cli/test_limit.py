"""`grns pool limit …`; no broker is needed for any of it."""

from __future__ import annotations

import pytest

from tests.cli.test_access import Call

pytest_plugins = ["tests.cli.test_access"]


@pytest.fixture(autouse=True)
def _without_a_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRNS_NATS_URL", "nats://127.0.0.1:1")


def test_limit_is_put_shown_paused_and_deleted(grns: Call) -> None:
    made = grns("pool", "limit", "put", "openai", "--pool", "agents", "--rate", "500/1m", "--burst", "50")
    assert (made.code, made.out.strip()) == (0, "openai"), made.err
    tenant = ("--pool", "shop", "--type", "import_file", "--key", "customer.id", "--max", "5")
    assert grns("pool", "limit", "put", "tenant", *tenant).code == 0
    listed = grns("pool", "limit", "list").out
    assert "500/1m" in listed
    assert "shop:import_file by customer.id" in listed
    shown = grns("pool", "limit", "show", "openai", "-o", "json").json
    assert (shown["rate_count"], shown["rate_seconds"], shown["burst"]) == (500, 60, 50)
    assert grns("pool", "limit", "keys", "tenant").code == 0
    assert "outage" in grns("pool", "limit", "pause", "openai", "--reason", "outage").out
    assert "paused" in grns("pool", "limit", "list").out
    assert "active" in grns("pool", "limit", "resume", "openai").out
    assert "would delete limit openai" in grns("pool", "limit", "delete", "openai", "--dry-run").err
    assert grns("pool", "limit", "delete", "openai", "--yes").code == 0
    assert "grns pool limit list" in grns("pool", "limit", "show", "openai").err


@pytest.mark.parametrize(
    ("options", "words"),
    [((), "say max_tasks, or rate"), (("--rate", "fast"), "500/1m"), (("--max", "0"), "--max")],
)
def test_what_cannot_be_is_refused(grns: Call, options: tuple[str, ...], words: str) -> None:
    refused = grns("pool", "limit", "put", "openai", "--pool", "agents", *options)
    assert refused.code == 2
    assert words in refused.err
