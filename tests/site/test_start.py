"""Five minutes, followed: what the page has somebody type into three terminals, on a stack of its own."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from tests.process.test_dev import Dev, start
from tests.site.page import blocks, written

__all__ = ["start"]  # the fixture

pytestmark = pytest.mark.timeout(180)

_PATIENCE_SECONDS = 60


def commands_of(block: str) -> list[str]:
    """Return the lines of a block, without what is said behind them."""
    return [re.sub(r"\s+#.*", "", line) for line in block.splitlines()]


def test_five_minutes(start: Callable[[], Dev]) -> None:
    install, run, work, submit, look, mend, verify = blocks("start.md")
    assert "pip install 'grns[dev] @" in install
    assert commands_of(run) == ["grns dev"]
    dev = start()
    dev.ready()
    told = re.search(r"http://127\.0\.0\.1:\d+", dev.output)
    assert told, "the page says that it prints the dashboard's address"
    written("start.md", dev.directory)
    worker = begun(dev, commands_of(work)[0])
    try:
        first, *_ = printed = typed(dev, submit)
        assert "succeeded" in "\n".join(printed), first
        until(lambda: states(dev) == {"succeeded": 1, "dead": 5})
        dead = str(tasks(dev, "status:dead")[0]["id"])
        said = "\n".join(typed(dev, look.replace("TASK_ID", dead)))
        assert "only https" in said
        until(lambda: issues(dev) == [5])
        typed(dev, mend.replace("--canary", "--canary --yes"))
        assert states(dev) == {"succeeded": 6}
        until(lambda: issues(dev) == [0])
        typed(dev, verify)
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.wait(timeout=40)


def until(fact: Callable[[], bool]) -> None:
    """Wait for a fact that costs a process to look at."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not fact():
        assert time.monotonic() < deadline, "it never became true"
        time.sleep(1)


def begun(dev: Dev, line: str) -> subprocess.Popen[bytes]:
    """Begin what goes on, in a terminal of its own."""
    words = line.split()
    assert words[0] == "grns"
    return subprocess.Popen(
        [sys.executable, "-m", *words],
        cwd=dev.directory,
        env=dev.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def typed(dev: Dev, block: str) -> list[str]:
    """Type a block into a terminal; each of its commands goes well."""
    shell = f'set -eu\ngrns() {{ "{sys.executable}" -m grns "$@"; }}\n{block}'
    done = subprocess.run(
        ["/bin/sh", "-c", shell],
        cwd=dev.directory,
        env=dev.environment,
        capture_output=True,
        text=True,
        timeout=_PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, (block, done.stdout, done.stderr)
    return done.stdout.splitlines()


def tasks(dev: Dev, *terms: str) -> list[dict[str, object]]:
    """Return the tasks that these terms fit."""
    return [json.loads(line) for line in typed(dev, f"grns task list -o jsonl {' '.join(terms)}")]


def states(dev: Dev) -> dict[str, int]:
    """Return how many tasks are in which state."""
    found = [str(one["status"]) for one in tasks(dev)]
    return {state: found.count(state) for state in found}


def issues(dev: Dev) -> list[object]:
    """Return how many tasks each issue has open."""
    return [json.loads(line)["open_count"] for line in typed(dev, "grns issue list -o jsonl")]
