"""`grns archive`, as a user types it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from grns.maintenance.retention import delete_tasks
from grns.postgres.database import Database
from grns.runtime.place import DirectoryPlace
from tests.support.cli import Call, CliServers

_OLD = "update grns.tasks set finished_at = now() - interval '40 days' where id = '{}'"


def _retain(url: str, place: Path, task_id: str) -> int:
    """Delete a task that has ended, into the archive, as the janitor would in 40 days."""

    async def retain() -> int:
        database = Database(url, name="test")
        async with database.opened():
            async with database.connection() as connection:
                await connection.execute(_OLD.format(task_id))
            page = await delete_tasks(database, "", 100, 30 * 86_400.0, 30 * 86_400.0, DirectoryPlace(place))
        return page.deleted

    return asyncio.run(retain())


def test_a_task_is_found_and_restored(
    grns: Call, cli_servers: CliServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = grns("archive", "list")
    assert (refused.code, "GRNS_ARCHIVE" in refused.err) == (2, True)
    monkeypatch.setenv("GRNS_ARCHIVE", str(tmp_path))
    assert grns("archive", "list").err.strip() == "no archives"
    payload = json.dumps({"path": json.__file__})
    said = grns(
        "task", "submit", "digest_file", "--pool", "digest", "--payload", payload, "--wait", "-o", "json"
    )
    task_id = said.json["id"]
    shown = grns("task", "show", task_id, "-o", "json").json
    assert _retain(cli_servers.database_url, tmp_path, task_id) == 1
    assert grns("task", "show", task_id).code == 3

    (archive,) = grns("archive", "list", "-o", "json").json["items"]
    assert (archive["kind"], archive["rows"], archive["first"]) == ("tasks", 1, task_id)
    assert archive["name"] in grns("archive", "list").out
    for kind in ("events", "mail"):
        assert grns("archive", "list", "--kind", kind, "-o", "json").json["items"] == []
    row = json.loads(grns("archive", "show", task_id).out)
    assert row["tasks"][0]["status"] == "succeeded"
    assert grns("archive", "show", archive["name"]).out == grns("archive", "show", task_id).out
    assert grns("archive", "show", task_id, "--events").err.strip().startswith("0 events")
    assert grns("archive", "show", archive["name"], "--events").code == 2
    missing = grns("archive", "show", "gr-00000000000000000000000000")
    assert (missing.code, "grns archive list" in missing.err) == (3, True)

    assert grns("archive", "restore", task_id).code == 2, "there is no terminal to ask at"
    tried = grns("archive", "restore", task_id, "--dry-run")
    assert (tried.code, "would restore 1 task" in tried.err) == (0, True)
    restored = grns(
        "archive", "restore", archive["name"], "--yes", "--keep", "90d", "--reason", "audit", "-o", "json"
    )
    assert restored.json["items"] == [{"task_id": task_id, "outcome": "restored"}]
    again = grns("task", "show", task_id, "-o", "json").json
    assert {**again, "finished_at": None} == {**shown, "finished_at": None}
    assert "restored from an archive by " in grns("explain", task_id).out
    twice = grns("archive", "restore", task_id, "--yes")
    assert (twice.code, "already there" in twice.err) == (4, True)
