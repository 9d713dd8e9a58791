"""The tutorial, followed: a web app, a worker, a failure, a redrive, a subscriber."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from grns.dev.servers.port import free_port
from tests.process.test_dev import Dev, start
from tests.site.page import blocks, written
from tests.site.test_start import states, tasks, typed, until

__all__ = ["start"]  # the fixture

pytestmark = pytest.mark.timeout(180)


@contextmanager
def running(dev: Dev, command: str, environment: dict[str, str]) -> Iterator[Path]:
    """Run a program of the page until the block ends; yields the file with its output."""
    program, *arguments = shlex.split(command)
    module = [] if program == "python" else ["-m", program]
    output = dev.directory / f"{program}-{arguments[0]}.log"
    with output.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, *module, *arguments],
            cwd=dev.directory,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            yield output
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(timeout=40)


def environment_of(dev: Dev) -> dict[str, str]:
    """Return the environment of a terminal in which `. .grns/env` was typed."""
    shown = subprocess.run(
        ["/bin/sh", "-c", ". .grns/env && env -0"],
        cwd=dev.directory,
        env=dev.environment,
        capture_output=True,
        check=True,
    ).stdout.decode()
    return dict(line.split("=", 1) for line in shown.split("\0") if line)


def test_tutorial_followed_ends_with_every_receipt_sent_and_shipped(start: Callable[[], Dev]) -> None:
    steps = [block.strip() for block in blocks("tutorial.md")]
    install, run, load, test, serve, work, order, look, redrive, subscribe = steps
    assert "pip install 'grns[dev] @" in install
    assert run == "grns dev"
    assert ". .grns/env" in load
    dev = start()
    dev.ready()
    written("tutorial.md", dev.directory)
    environment = environment_of(dev)
    port = str(free_port())
    command = [sys.executable, "-m", *shlex.split(test.splitlines()[1])]
    tested = subprocess.run(
        command, cwd=dev.directory, env=environment, capture_output=True, text=True, check=False
    )
    assert "2 passed" in tested.stdout, tested.stdout
    with (
        running(dev, serve.replace("8100", port), environment) as app,
        running(dev, work, environment),
    ):
        until(lambda: "Application startup complete" in app.read_text())
        answers = typed(dev, order.replace("8100", port))
        made = [json.loads(one)["task_id"] for one in re.findall(r"\{[^}]*task_id[^}]*\}", "".join(answers))]
        assert len(made) == 2, answers
        until(lambda: states(dev) == {"succeeded": 1, "dead": 1})
        assert [task["id"] for task in tasks(dev, "status:dead")] == [made[1]]
        shown = "\n".join(typed(dev, look.replace("TASK_ID", made[1])))
        assert "not an email address: ann.example.org" in shown
        typed(dev, redrive.replace("TASK_ID", made[1]))
        until(lambda: states(dev) == {"succeeded": 2})
        with running(dev, subscribe, environment) as shipped:
            until(lambda: sorted(shipped.read_text().split()) == sorted(["ship", "ship", *made]))
