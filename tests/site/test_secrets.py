"""The page about secrets, followed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from grns.dev.servers import LocalNats
from grns.postgres.database import Database
from tests.site.page import blocks, written
from tests.support.harness import Fleet
from tests.support.store import fetch


async def test_the_page_about_secrets(
    fleet: Fleet, database: Database, broker: LocalNats, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = os.environ | {
        "GRNS_DATABASE_URL": database.url, "GRNS_NATS_URL": broker.url,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": str(tmp_path),
    }  # fmt: skip

    def run(*arguments: str) -> str:
        return subprocess.run(
            arguments, capture_output=True, text=True, check=True, cwd=tmp_path, env=environment
        ).stdout

    make, rotate = blocks("secrets.md")
    run("sh", "-ec", make)
    environment["GRNS_KEYS_FILE"] = str(tmp_path / "keys")
    _, submit = written("secrets.md", tmp_path)
    fleet.start("server", **{"GRNS_KEYS_FILE": environment["GRNS_KEYS_FILE"]})
    fleet.start(
        "worker", "start", "deploys:pool",
        PYTHONPATH=str(tmp_path), GRNS_KEYS_FILE=environment["GRNS_KEYS_FILE"],
    )  # fmt: skip
    task_id = run(sys.executable, str(submit)).strip()
    assert "t0ken" not in run("grns", "task", "show", task_id)
    assert "t0ken-of-web-1" in run("grns", "task", "reveal", task_id)
    (row,) = await fetch(database, "select payload::text as payload from grns.tasks where id = $1", task_id)
    assert "t0ken" not in row["payload"]
    old = (tmp_path / "keys").read_text()
    (tmp_path / "keys").write_text(run("grns", "admin", "secret", "new-key", "newer") + old)
    shown = run("sh", "-ec", rotate)
    assert [line.split()[:2] for line in shown.splitlines() if line.startswith("newer")] == [["newer", "1"]]
    assert "t0ken-of-web-1" in run("grns", "task", "reveal", task_id)
