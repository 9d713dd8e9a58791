"""The page about blobs, followed."""

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


async def test_the_page_about_blobs(
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

    _, submit = written("blobs.md", tmp_path)
    (tmp_path / "novel.txt").write_text("test")  # the page has the sha256 of this word
    fleet.start("server")
    fleet.start("worker", "start", "reports:pool", PYTHONPATH=str(tmp_path))
    assert run(sys.executable, str(submit)).strip() == "test"
    shell, _ = blocks("blobs.md")
    shown = run("sh", "-ec", shell)
    assert "sha256-9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08" in shown
    assert (tmp_path / "copy.txt").read_text() == "test"


async def test_the_page_with_a_blob_store(
    fleet: Fleet, database: Database, broker: LocalNats, tmp_path: Path
) -> None:
    store = tmp_path / "grns-blobs"
    store.mkdir()
    _, export = blocks("blobs.md")
    assert "/mnt/shared/grns-blobs" in export
    environment = {
        "GRNS_DATABASE_URL": database.url, "GRNS_NATS_URL": broker.url, "GRNS_BLOB_STORE": str(store),
        "PYTHONPATH": str(tmp_path),
    }  # fmt: skip
    _, submit = written("blobs.md", tmp_path)
    (tmp_path / "novel.txt").write_text(" ".join(map(str, range(30_000))))
    fleet.start("server", GRNS_BLOB_STORE=str(store))
    fleet.start("worker", "start", "reports:pool", **environment)

    def run(*arguments: str) -> str:
        return subprocess.run(
            arguments, capture_output=True, text=True, check=True, cwd=tmp_path, env=os.environ | environment
        ).stdout

    answer = run(sys.executable, str(submit))
    assert sorted(answer.split()) == sorted(map(str, range(30_000)))
    assert len([one for one in store.rglob("*") if one.is_file()]) == 2, "the text and the table"
