"""The page about usage, followed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from grns.dev.servers import LocalNats
from grns.postgres.database import Database
from tests.site.page import blocks, written
from tests.support.harness import Fleet


async def test_the_page_about_usage(
    fleet: Fleet, database: Database, broker: LocalNats, tmp_path: Path
) -> None:
    environment = os.environ | {
        "GRNS_DATABASE_URL": database.url, "GRNS_NATS_URL": broker.url,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": str(tmp_path),
    }  # fmt: skip
    written("usage.md", tmp_path)
    fleet.start("server")
    fleet.start("worker", "start", "writers:pool", PYTHONPATH=str(tmp_path))
    shell, budget, more = blocks("usage.md")

    def run(*arguments: str) -> str:
        return subprocess.run(
            arguments, capture_output=True, text=True, check=True, cwd=tmp_path, env=environment
        ).stdout

    shown = run("sh", "-ec", shell)
    assert "$0.0400" in shown
    assert "gpt-4o-mini" in shown
    assert "$0.04 of $200.00" in run("sh", "-ec", f"{budget}\nsleep 3\n{budget}")
    assert "$0.04 of $250.00" in run("sh", "-ec", more)
