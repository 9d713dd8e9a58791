"""`grns dev`: ready soon, found by itself, ended at once, and nothing of it stays behind."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.dev.test_servers import family
from tests.support.harness import is_alive

# Three seconds on a quiet machine; a busy one with two cores takes longer.
READY_SECONDS = 45.0
END_SECONDS = 20.0

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def until(fact: Callable[[], bool], within_seconds: float = END_SECONDS) -> None:
    """Wait for a fact."""
    deadline = time.monotonic() + within_seconds
    while not fact():
        assert time.monotonic() < deadline, "it never became true"
        time.sleep(0.02)


class Dev:
    """One `grns dev` in a directory."""

    def __init__(self, directory: Path, number: int) -> None:
        self.directory = directory
        self.announced = directory / ".grns/dev.toml"
        self._output = directory / f"output-{number}"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GRNS_")}
        self.environment = kept | {"VIRTUAL_ENV": "active somewhere", "PYTHONFAULTHANDLER": "1"}
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "grns", "dev"],
                cwd=directory,
                env=self.environment,
                stdout=output,
                stderr=output,
            )
        self.pids: set[int] = set()

    @property
    def output(self) -> str:
        """What it has said."""
        return self._output.read_text()

    def ready(self) -> None:
        """Wait until it is ready, and remember its processes."""
        until(lambda: "Ctrl-C ends it" in self.output or self.process.poll() is not None, READY_SECONDS)
        assert self.process.poll() is None, self.output
        self.pids = family(self.process.pid)

    def command(self, line: str) -> subprocess.CompletedProcess[str]:
        """Run a command line in another terminal."""
        return subprocess.run(
            ["/bin/sh", "-c", line],
            cwd=self.directory,
            env=self.environment | {"PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        self.process.send_signal(signal.SIGINT)

    def end(self, within_seconds: float = END_SECONDS) -> int:
        """Return the exit code; where it does not end, fail with what each of its processes is at."""
        try:
            return self.process.wait(within_seconds)
        except subprocess.TimeoutExpired:
            for pid in sorted(family(self.process.pid), reverse=True):
                if b"python" in _command_of(pid):
                    os.kill(pid, signal.SIGABRT)
            self.process.wait()
            logs = [self._output, *(self.directory / ".grns").glob("*.log")]
            pytest.fail("\n".join(f"{log}:\n{log.read_text()}" for log in logs))

    def server(self, name: str) -> int:
        """Return the process id of one of its servers: a child of its own, by the program's name."""
        children = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        pids = [int(child) for path in children for child in path.read_text().split()]
        return next(pid for pid in pids if _command_of(pid).split(b"\0")[0].endswith(f"/{name}".encode()))

    def is_gone(self) -> bool:
        """Tell whether all of its processes have ended."""
        return not any(is_alive(pid) for pid in self.pids)


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    """Keep a process from going on, whoever lets it: what ends a server thaws it first."""
    is_over = threading.Event()

    def freeze() -> None:
        while not is_over.wait(0.001):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)

    freezer = threading.Thread(target=freeze)
    freezer.start()
    try:
        yield
    finally:
        is_over.set()
        freezer.join()


@pytest.fixture
def start() -> Iterator[Callable[[], Dev]]:
    """Start `grns dev` in one directory, as often as one likes."""
    directory = Path(tempfile.mkdtemp(prefix="grns-dev-"))
    directory.chmod(0o755)
    started: list[Dev] = []

    def begin() -> Dev:
        started.append(Dev(directory, len(started)))
        return started[-1]

    yield begin
    for dev in started:
        dev.process.kill()
        dev.process.wait()
        until(dev.is_gone)
    shutil.rmtree(directory)


def test_it_is_ready_found_and_ended(start: Callable[[], Dev]) -> None:
    dev = start()
    dev.ready()
    urls = dev.announced.read_text()
    places = dev.output.splitlines()[:2]
    shown = [line.strip() for line in dev.output.splitlines() if " task submit " in line]
    tried = dev.command(f"{shown[0]} -o json")
    assert tried.returncode == 0, tried.stderr
    task = json.loads(tried.stdout)
    assert task["status"] == "succeeded"
    assert task["result"]["bytes"] == Path(json.__file__).stat().st_size
    dev.pids = family(dev.process.pid)
    assert len(dev.pids) > 5, "the servers, their backends, a worker and its heartbeat process"

    second = start()
    assert second.end(READY_SECONDS) == 4
    assert f"in use by process {dev.process.pid}" in second.output
    assert "Traceback" not in second.output

    dev.interrupt()
    assert dev.end() == 0
    assert dev.is_gone()
    assert not dev.announced.exists()
    assert dev.output.rstrip().endswith("Ctrl-C ends it"), "it ends without a word"

    again = start()
    again.ready()
    assert again.output.splitlines()[:2] == places
    assert again.announced.read_text() == urls, "passwords are kept, too"
    listed = again.command(f"{shlex.quote(sys.executable)} -m grns task show {task['id']} -o json")
    assert json.loads(listed.stdout)["status"] == "succeeded", "data is kept"

    # A Postgres that does not answer holds the end up; the second Ctrl-C does not wait for it.
    broker = again.server("nats-server")
    with frozen(again.server("postgres")):
        again.interrupt()
        until(lambda: not is_alive(broker))
        assert not again.announced.exists()
        assert again.process.poll() is None
        again.interrupt()
        assert again.end() == 130
    until(again.is_gone)


def get(url: str, **headers: str) -> tuple[int, str, str]:
    """Ask a URL and follow nothing; returns the status, where it leads, and its cookie."""
    parts = urlsplit(url)
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=30)
    try:
        connection.request("GET", f"{parts.path}?{parts.query}", headers=headers)
        answer = connection.getresponse()
        answer.read()
        cookie = (answer.getheader("set-cookie") or "").partition(";")[0]
        return answer.status, answer.getheader("location") or "", cookie
    finally:
        connection.close()


def test_dev_opens_to_its_user_and_to_nobody_else(start: Callable[[], Dev]) -> None:
    """H2, H3: what `grns dev` announces opens everything, and without it nothing opens."""
    dev = start()
    dev.ready()
    link = re.findall(r"http://\S+/login\?token=\S+", dev.output)[0]
    site = link.partition("/login")[0]
    assert get(f"{site}/") == (303, "/login", "")
    assert get(f"{site}/api/v1/counts", Host="localhost")[0] == 401
    assert get(f"{link}0")[0] == 200, "the page that asks for a key"
    status, to, cookie = get(link)
    assert (status, to) == (303, "/")
    assert get(f"{site}/", Cookie=cookie)[0] == 200

    shown = [line.strip() for line in dev.output.splitlines() if line.strip().startswith("curl ")]
    assert json.loads(dev.command(shown[0]).stdout)["items"] == []
    elsewhere = [line.strip() for line in dev.output.splitlines() if line.strip().startswith(". ")]
    listed = dev.command(f"cd / && {elsewhere[0]} && {shlex.quote(sys.executable)} -m grns task list -o json")
    assert json.loads(listed.stdout)["items"] == []
    asked = dev.command(f"{shlex.quote(sys.executable)} -m grns admin config show --origin -o json")

    root = dev.directory / ".grns"
    kept = tomllib.loads(dev.announced.read_text())
    secrets = [urlsplit(kept["database_url"]).password, urlsplit(kept["nats_url"]).username]
    secrets += [(root / name).read_text().strip() for name in ("api_key", "session_secret")]
    for secret in secrets:
        assert secret is not None
        assert len(secret) >= 48
        assert secret not in dev.output + asked.stdout + asked.stderr
        for path in root.rglob("*"):
            if path.is_file() and secret.encode() in path.read_bytes():
                assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
                assert path.suffix != ".log"
        for pid in family(dev.process.pid):
            assert secret.encode() not in _command_of(pid)

    dev.interrupt()
    assert dev.end() == 0
    assert not (root / "env").exists()
    again = start()
    again.ready()
    old, new = link.partition("?")[2], re.findall(r"(http://\S+/login)\?token=(\S+)", again.output)[0]
    assert old != f"token={new[1]}"
    assert get(f"{new[0]}?{old}")[0] == 200, "the URL of before asks for a key"
    assert get(new[0].removesuffix("login"), Cookie=cookie)[0] == 200, "a browser stays logged in"
    keys = json.loads(
        again.command(f"{shlex.quote(sys.executable)} -m grns admin key list --all-workspaces -o json").stdout
    )
    assert len(keys["items"]) == 1, "and the key the same"


def test_killed_it_leaves_no_orphan_and_starts_again(start: Callable[[], Dev]) -> None:
    dev = start()
    dev.ready()
    grns = f"{shlex.quote(sys.executable)} -m grns"
    assert dev.command(f"{grns} task submit flaky --pool digest --wait").returncode == 0
    dev.pids = family(dev.process.pid)
    dev.process.kill()
    dev.process.wait()
    until(dev.is_gone)
    assert dev.announced.exists()
    lost = dev.command(f"{grns} task list")
    assert lost.returncode == 5
    assert "try: grns dev" in lost.stderr
    again = start()
    again.ready()
    listed = json.loads(again.command(f"{grns} task list -o json").stdout)
    assert [row["status"] for row in listed["items"]] == ["succeeded"]


def _command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
