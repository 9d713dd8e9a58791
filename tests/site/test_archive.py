"""The page about archives, followed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from grns.dev.servers import LocalNats
from grns.postgres.database import Database
from tests.site.page import blocks
from tests.support.harness import Fleet, eventually


async def test_the_page_about_archives(
    fleet: Fleet, database: Database, broker: LocalNats, tmp_path: Path
) -> None:
    environment = os.environ | {
        "GRNS_DATABASE_URL": database.url, "GRNS_NATS_URL": broker.url,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "GRNS_ARCHIVE": str(tmp_path / "archive"),
    }  # fmt: skip

    def run(*arguments: str, code: int = 0) -> str:
        done = subprocess.run(arguments, capture_output=True, text=True, cwd=tmp_path, env=environment)
        assert done.returncode == code, done.stderr
        return done.stdout if code == 0 else done.stderr

    (tmp_path / "archive").mkdir()
    fleet.start("server")
    fleet.start("worker", "start", "workers.digest:pool")
    payload = json.dumps({"path": json.__file__})
    submission = ("digest_file", "--pool", "digest", "--payload", payload, "--wait")
    task_id = json.loads(run("grns", "task", "submit", *submission, "-o", "json"))["id"]
    # It begins its walk at once, and the task has ended long ago for it.
    fleet.start(
        "daemon", "janitor", GRNS_ARCHIVE=environment["GRNS_ARCHIVE"], GRNS_TASK_RETENTION_DAYS="0.000001"
    )

    async def listed() -> bool:
        return bool(json.loads(run("grns", "archive", "list", "-o", "json"))["items"])

    await eventually(listed, within_seconds=30.0)
    (archive,) = json.loads(run("grns", "archive", "list", "-o", "json"))["items"]
    _, reading, restoring = blocks("archive.md")

    def filled(text: str) -> str:
        return text.replace("TASK_ID", task_id).replace("ARCHIVE", archive["name"])

    assert task_id in run("sh", "-ec", filled(reading))
    assert task_id in (tmp_path / "rows.jsonl").read_text()
    by_id, by_name = filled(restoring).strip().splitlines()
    assert "restored" in run("sh", "-ec", f"{by_id} --yes")
    assert "already there" in run("sh", "-ec", by_name, code=4)
    assert run("grns", "task", "show", task_id, "-o", "json")
