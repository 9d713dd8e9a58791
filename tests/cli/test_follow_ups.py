"""`grns pool follow-ups`; no broker is needed for it."""

from __future__ import annotations

import json

from tests.support.cli import Call


def test_follow_ups_are_declared_and_shown(cli: Call) -> None:
    wanted = [{"follows": "review", "outcome": "failure", "task_type": "tell_editor", "agent_type": "desk"}]
    assert cli("pool", "follow-ups", "coder").out == ""
    made = cli("pool", "follow-ups", "coder", "--put", json.dumps(wanted))
    assert made.code == 0, made.err
    shown = cli("pool", "follow-ups", "coder").out
    assert all(word in shown for word in ("review", "failure", "tell_editor", "desk"))
    refused = cli("pool", "follow-ups", "coder", "--put", "{}")
    assert (refused.code, "a JSON list" in refused.err) == (2, True)
    assert cli("pool", "follow-ups", "coder", "--put", "[]").code == 0
    assert cli("pool", "follow-ups", "coder").out == ""
