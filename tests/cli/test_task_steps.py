"""`grns task steps`, `signal` and `reset`, as somebody types them; no broker is needed for any of it."""

from __future__ import annotations

from grns.postgres.database import Database
from tests.cli.test_pool import with_database
from tests.support.cli import Call
from tests.support.store import fetch


def test_ended_task_is_reset_to_one_of_its_steps(cli: Call, url: str) -> None:
    task_id = cli("task", "submit", "noop", "-o", "json").json["id"]
    assert "no steps" in cli("task", "steps", task_id).err

    async def record(database: Database) -> None:
        for name in ("fetch", "write"):
            await fetch(
                database,
                "insert into grns.steps (task_id, name, workspace, kind, value, attempt)"
                " values ($1, $2, 'default', 'step', '1', 1)",
                task_id,
                name,
            )

    with_database(url, record)
    early = cli("task", "reset", task_id, "--to", "write")
    assert (early.code, "is queued: only one that failed can be reset" in early.err) == (4, True)
    assert cli("task", "cancel", task_id, "--yes").code == 0
    unknown = cli("task", "reset", task_id, "--to", "wirte")
    assert (unknown.code, f"grns task steps {task_id}" in unknown.err) == (3, True)
    assert cli("task", "reset", task_id, "--to", "write", "-o", "json").json == {"answer": "redriven"}
    names = [step["name"] for step in cli("task", "steps", task_id, "-o", "json").json["items"]]
    assert names == ["fetch"]


def test_signal_is_kept_for_a_task(cli: Call) -> None:
    task_id = cli("task", "submit", "noop", "-o", "json").json["id"]
    sent = cli("task", "signal", task_id, "approved", "--value", '{"by": "ann"}', "-o", "json")
    assert (sent.code, sent.json) == (0, {"answer": "kept"})
