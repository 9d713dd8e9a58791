"""Child processes that do not outlive this one."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from grns.dev.servers.identity import Identity, current
from grns.errors import GrnsError, LocalServerError

_POLL_SECONDS = 0.004
_TAIL_CHARACTERS = 4_000
_TOLD_CHARACTERS = 1_000
_STOP_SECONDS = 15.0
# Reads a process id, and kills that process if the input ends without another line: only this process holds
# the writing end of the pipe, so the input ends when this process does.
_WATCHDOG = 'read -r pid || exit; read -r line || kill -KILL "$pid"'


class EarlyExit(LocalServerError):
    """A server ended before it was ready; `log` is the end of its output since its start."""

    def __init__(self, name: str, *, log: str) -> None:
        super().__init__(f"{name} ended before it was ready\n{log}".rstrip())
        self.log = log


class Process:
    """A child process that writes to a log file. A small watchdog process kills it if this process dies."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        log: Path,
        identity: Identity | None = None,
        environment: Mapping[str, str] | None = None,
        directory: Path = Path("/"),
    ) -> None:
        self.name = Path(command[0]).name
        self._command = list(command)
        self._log = log
        self._log_start = 0
        self._identity = identity or current()
        self._environment = dict(environment or {})
        self._directory = directory
        self._popen: subprocess.Popen[bytes] | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        """Whether the child has been started and has not ended."""
        if self._popen is None or self._popen.poll() is None:
            return self._popen is not None
        if self._watchdog is not None:
            self._watchdog.communicate(b"\n")
            self._watchdog = None
        return False

    @property
    def pid(self) -> int:
        """The process id of the latest child."""
        if self._popen is None:
            raise LocalServerError(f"{self.name} has not been started")
        return self._popen.pid

    def start(self, *, stdin: bytes = b"") -> None:
        """Start the child; return as soon as it runs, ready or not."""
        if self.running:
            raise LocalServerError(f"{self.name} is running already")
        self._log_start = self._log.stat().st_size if self._log.exists() else 0
        null = subprocess.DEVNULL
        self._watchdog = subprocess.Popen(
            ["/bin/sh", "-c", _WATCHDOG],
            stdin=subprocess.PIPE,
            stdout=null,
            stderr=null,
            start_new_session=True,
        )
        try:
            self._popen = self._spawn()
        except (OSError, subprocess.SubprocessError) as error:
            self._watchdog.communicate()
            raise LocalServerError(f"cannot run {self._command[0]}: {error}") from error
        assert self._watchdog.stdin is not None  # noqa: S101 - it is a pipe
        self._watchdog.stdin.write(f"{self._popen.pid}\n".encode())
        self._watchdog.stdin.flush()
        with contextlib.suppress(BrokenPipeError):
            if self._popen.stdin is not None:
                self._popen.stdin.write(stdin)
                self._popen.stdin.close()

    def wait_ready(self, ready: Callable[[], bool], *, deadline: float) -> None:
        """Return once `ready()`; on an error leave no child.

        Args:
            deadline: a time of `time.monotonic`.

        Raises:
            EarlyExit: the child ended first.
            LocalServerError: the deadline passed.
        """
        try:
            while not ready():
                if not self.running:
                    raise EarlyExit(self.name, log=self.tail())
                if time.monotonic() > deadline:
                    raise LocalServerError(f"{self.name} did not become ready in time\n{self.tail()}")
                time.sleep(_POLL_SECONDS)
        except BaseException:
            self.kill()
            raise

    def complete(self, *, stdin: bytes = b"", timeout_seconds: float) -> None:
        """Run the child to its end.

        Raises:
            LocalServerError: it failed, or took too long.
        """
        self.start(stdin=stdin)
        try:
            has_ended = self._wait(timeout_seconds)
        finally:
            self.kill()
        if not has_ended or self._popen is None or self._popen.returncode != 0:
            why = "failed" if has_ended else f"took longer than {timeout_seconds} seconds"
            raise LocalServerError(f"{self.name} {why}\n{self.tail()}")

    def stop(self, end: signal.Signals, *, timeout_seconds: float) -> None:
        """Ask the child to end with the signal `end`, and kill it after the timeout."""
        self._send(end)
        self.thaw()  # a frozen child does not receive the signal
        if not self._wait(timeout_seconds):
            self.kill()

    def kill(self) -> None:
        """End the child with SIGKILL and wait until it is gone."""
        self._send(signal.SIGKILL)
        self._wait(None)

    def freeze(self) -> None:
        """Suspend the child: it keeps its sockets and does not answer."""
        self._send(signal.SIGSTOP)

    def thaw(self) -> None:
        """Resume a frozen child."""
        self._send(signal.SIGCONT)

    def tail(self) -> str:
        """Return the end of the child's output since its start."""
        try:
            with self._log.open("rb") as log:
                log.seek(self._log_start)
                return log.read().decode(errors="replace")[-_TAIL_CHARACTERS:]
        except OSError:
            return ""

    def _send(self, number: signal.Signals) -> None:
        if self._popen is not None and self.running:
            self._popen.send_signal(number)

    def _wait(self, timeout_seconds: float | None) -> bool:
        """Wait for the child's end; return whether it has ended."""
        if self._popen is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._popen.wait(timeout_seconds)
        return not self.running

    def _spawn(self) -> subprocess.Popen[bytes]:
        identity = self._identity
        with self._log.open("ab") as log:
            return subprocess.Popen(
                identity.command(self._command),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=self._directory,  # the child's user may not be able to read ours
                env=_clean_environment() | self._environment,
                user=identity.uid if identity.switches else None,
                group=identity.gid if identity.switches else None,
                extra_groups=[] if identity.switches else None,
                start_new_session=True,  # Ctrl-C is for this process, which ends its children in order
            )


def _clean_environment() -> dict[str, str]:
    """Return our environment without variables that change a server's behavior or language."""
    foreign = ("PG", "LC_", "LANG")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return kept | {"LC_ALL": "C"}


class ProcessGroup:
    """Processes of grns with their logs in `directory`, which end together."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._members: dict[str, Process] = {}

    def start(self, name: str, *arguments: str, environment: Mapping[str, str]) -> Process:
        """Start `grns <arguments>` as the member `name`."""
        command = [sys.executable, "-m", "grns", *arguments]
        process = Process(command, log=self._directory / f"{name}.log", environment=environment)
        self._members[name] = process
        process.start()
        return process

    def kill(self, process: Process) -> None:
        """End a member with SIGKILL; `check` does not report it."""
        self._members = {name: member for name, member in self._members.items() if member is not process}
        process.kill()

    def check(self) -> None:
        """Raise `GrnsError` if a member has ended unasked."""
        for name, process in self._members.items():
            if not process.running:
                tail = self.logs().get(name, "").strip()[-_TOLD_CHARACTERS:]
                raise GrnsError(f"the process {name} has ended; the end of its log:\n{tail}")

    def logs(self) -> dict[str, str]:
        """Return the end of each member's output."""
        return {
            path.stem: path.read_text(encoding="utf-8", errors="replace")[-_TAIL_CHARACTERS // 2 :]
            for path in sorted(self._directory.glob("*.log"))
        }

    def end(self) -> None:
        """Ask all members to end, and kill those that do not in time."""
        with ThreadPoolExecutor(len(self._members) or 1) as threads:
            stop = lambda member: member.stop(signal.SIGTERM, timeout_seconds=_STOP_SECONDS)  # noqa: E731
            list(threads.map(stop, self._members.values()))
