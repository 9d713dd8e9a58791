"""`grns workflow …`, as somebody types it; no broker is needed for any of it."""

from __future__ import annotations

import json
import re
from pathlib import Path

from grns.model.outcome import Verb
from grns.postgres.database import Database
from tests.cli.test_pool import with_database
from tests.support.cli import Call
from tests.support.followers import begin_here, follow
from tests.support.store import claim, finish

PLAN = {
    "name": "report",
    "tasks": [
        {"task_type": "write_report", "needs": ["a", "b"]},
        {"name": "a", "task_type": "fetch_page"},
        {"name": "b", "task_type": "fetch_page"},
    ],
}


def test_a_workflow_is_submitted_listed_and_shown(cli: Call, tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text(json.dumps(PLAN))
    made = cli("workflow", "submit", "@report.json", "-o", "json")
    assert made.code == 0, made.err
    assert set(made.json["tasks"]) == {"write_report", "a", "b"}
    workflow_id = made.json["id"]
    assert workflow_id in cli("workflow", "list", "--status", "running").out
    shown = cli("workflow", "show", workflow_id)
    assert "report" in shown.out
    assert "running" in shown.out
    tasks = cli("workflow", "tasks", workflow_id, "-o", "json").json["items"]
    waits_on = {one["name"]: sorted(one["waits_on"]) for one in tasks}
    assert waits_on == {"a": [], "b": [], "write_report": ["a", "b"]}


def test_workflow_with_an_escalation_shows_its_task(cli: Call, tmp_path: Path, url: str) -> None:
    call = {"task_type": "call_a_human", "agent_type": "ops", "payload": {"team": "imports"}}
    plan = {"name": "import", "tasks": [{"name": "a", "task_type": "noop"}]}
    (tmp_path / "report.json").write_text(json.dumps(plan | {"fail_after": {"count": 1, "then": call}}))
    made = cli("workflow", "submit", "@report.json", "-o", "json")
    assert made.code == 0, made.err
    assert cli("workflow", "show", made.json["id"], "-o", "json").json["escalation_task_id"] is None

    async def fail(database: Database) -> None:
        await begin_here(database)
        await finish(database, await claim(database, made.json["tasks"]["a"]), Verb.FAIL)
        await follow(database)

    with_database(url, fail)
    task_id = cli("workflow", "show", made.json["id"], "-o", "json").json["escalation_task_id"]
    shown = cli("workflow", "show", made.json["id"]).out
    assert task_id in shown
    assert re.search(r"^not succeeded +a$", shown, re.M)
    assert "call_a_human" in cli("task", "show", task_id).out
    wrong = plan | {"fail_after": {"count": 1, "then": call | {"agent_type": "two words"}}}
    assert "fail_after" in cli("workflow", "submit", json.dumps(wrong)).err


def test_open_workflow_is_extended_and_sealed(cli: Call) -> None:
    made = cli("workflow", "submit", json.dumps(PLAN | {"is_open": True}), "-o", "json")
    assert made.code == 0, made.err
    assert "sealed at" not in cli("workflow", "show", made.json["id"]).out
    added = cli("workflow", "add", made.json["id"], '{"tasks": [{"task_type": "noop"}]}', "-o", "json")
    assert (added.code, set(added.json["tasks"])) == (0, {"noop"})
    assert cli("workflow", "seal", made.json["id"], "-o", "json").json["sealed_at"] is not None
    assert "sealed at" in cli("workflow", "show", made.json["id"]).out
    again = cli("workflow", "add", made.json["id"], '{"tasks": [{"task_type": "noop"}]}')
    assert "is sealed: it takes no more tasks" in again.err
    assert "tasks" in cli("workflow", "add", made.json["id"], '{"tasks": []}').err


def test_workflow_is_paused_cancelled_and_redriven(cli: Call, tmp_path: Path) -> None:
    workflow_id = cli("workflow", "submit", json.dumps(PLAN), "-o", "json").json["id"]
    paused = cli("workflow", "pause", workflow_id, "--reason", "closed", "-o", "json")
    assert (paused.code, paused.json["pause_reason"]) == (0, "closed")
    assert "closed" in cli("workflow", "show", workflow_id).out
    assert cli("workflow", "resume", workflow_id, "-o", "json").json["paused_at"] is None
    tasks = cli("task", "list", f"workflow:{workflow_id}", "-o", "json").json["items"]
    assert len(tasks) == 3
    asked = cli("workflow", "cancel", workflow_id)
    assert "--yes" in asked.err, "no terminal to ask at"
    made = cli("workflow", "cancel", workflow_id, "--yes", "--detach", "-o", "json")
    assert (made.code, made.json["matched"]) == (0, 3)
    again = cli("workflow", "redrive", workflow_id, "--yes", "--detach")
    assert "is being cancelled: it can be redriven when it has ended" in again.err


def test_task_needs_others(cli: Call) -> None:
    first = cli("task", "submit", "charge", "-o", "json").json["id"]
    second = cli("task", "submit", "refund", "--needs", f"{first}:failure", "--required", "1", "-o", "json")
    assert second.code == 0, second.err
    assert cli("task", "show", second.json["id"], "-o", "json").json["waits_for"] == "tasks"
    wrong = cli("task", "submit", "refund", "--needs", f"{first}:never")
    assert "outcome" in wrong.err


def test_task_is_paused_and_resumed(cli: Call) -> None:
    made = cli("task", "submit", "charge", "-o", "json").json["id"]
    assert cli("task", "pause", made, "--reason", "maintenance", "-o", "json").json["items"] == [
        {"id": made, "answer": "paused"}
    ]
    assert "maintenance" in cli("explain", made).out
    assert cli("task", "resume", made).code == 0
    again = cli("task", "resume", made)
    assert "is unchanged (queued): only paused tasks can be resumed" in again.err
    assert "do not exist" in cli("task", "pause", "gr-nothing").err


def test_what_is_wrong_is_said_before_a_connection_is_opened(cli: Call) -> None:
    cycle = {"name": "x", "tasks": [{"name": "a", "task_type": "t", "needs": ["a"]}]}
    for plan, word in (
        ("{}", "name"),
        ("[]", "a workflow is a JSON object"),
        (json.dumps(cycle), "need each other: a -> a"),
    ):
        refused = cli("workflow", "submit", plan)
        assert refused.code != 0
        assert word in refused.err
    assert "grns workflow list" in cli("workflow", "show", "wf-nothing").err
