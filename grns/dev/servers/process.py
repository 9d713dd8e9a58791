"""One server process under our own hand: we are its direct parent, and it does not outlive us."""

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from pathlib import Path

from grns.dev.servers.identity import Identity, current
from grns.dev.servers.orphan import NEEDS_WATCHDOG, OrphanGuard, entry
from grns.errors import LocalServerError

_POLL_SECONDS = 0.004
_TAIL_CHARACTERS = 4_000


class EarlyExit(LocalServerError):
    """A server ended before it was ready; `log` is the end of what it wrote since its start."""

    def __init__(self, name: str, *, log: str) -> None:
        super().__init__(f"{name} ended before it was ready\n{log}".rstrip())
        self.log = log


class Process:
    """Start, watch and end one child process that writes to a log file.

    A thread of its own starts the child and waits for its exit: Linux sends the parent-death signal
    when the starting *thread* ends, so the thread must live as long as the child does. The caller
    may therefore be any thread, however short its life. Elsewhere a watchdog process does the job.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        log: Path,
        identity: Identity | None = None,
        environment: dict[str, str] | None = None,
        stdin: bytes = b"",
        directory: Path = Path("/"),
        watchdog: bool = NEEDS_WATCHDOG,
    ) -> None:
        self.name = Path(command[0]).name
        self._command = list(command)
        self._log = log
        self._log_start = 0
        self._identity = identity or current()
        self._environment = environment or {}
        self._stdin = stdin
        self._directory = directory
        self._watchdog = watchdog
        self._popen: subprocess.Popen[bytes] | None = None
        self._exited = threading.Event()
        self._exited.set()

    @property
    def running(self) -> bool:
        """Tell whether the child has been started and has not ended."""
        return not self._exited.is_set()

    @property
    def pid(self) -> int:
        """Return the process id of the latest child."""
        if self._popen is None:
            raise LocalServerError(f"{self.name} has not been started")
        return self._popen.pid

    def start(self) -> None:
        """Start the child; return as soon as it runs, ready or not."""
        if self.running:
            raise LocalServerError(f"{self.name} is running already")
        self._log_start = self._log.stat().st_size if self._log.exists() else 0
        self._exited = threading.Event()
        started: Future[None] = Future()
        heartbeat = threading.Thread(
            target=self._keep, args=(started, self._exited), name=f"grns-{self.name}", daemon=True
        )
        heartbeat.start()
        try:
            started.result()
        except (OSError, subprocess.SubprocessError) as error:
            raise LocalServerError(f"cannot run {self._command[0]}: {error}") from error
        except BaseException:  # interrupted: the child may exist by now
            wait([started])
            self.kill()
            raise

    def wait_ready(self, ready: Callable[[], bool], *, deadline: float) -> None:
        """Return once `ready()`; on anything else leave no child behind.

        `deadline` is a time of `time.monotonic`. Raises EarlyExit when the child ends first,
        LocalServerError when the deadline passes.
        """
        try:
            while not ready():
                if self._exited.wait(_POLL_SECONDS):
                    raise EarlyExit(self.name, log=self.tail())
                if time.monotonic() > deadline:
                    raise LocalServerError(f"{self.name} did not become ready in time\n{self.tail()}")
        except BaseException:
            self.kill()
            raise

    def complete(self, *, timeout_seconds: float) -> None:
        """Start a child that does one thing and ends; raise LocalServerError unless it ends well."""
        self.start()
        try:
            ended = self._exited.wait(timeout_seconds)
        finally:
            self.kill()
        if not ended or self._popen is None or self._popen.returncode != 0:
            why = "failed" if ended else f"took longer than {timeout_seconds} seconds"
            raise LocalServerError(f"{self.name} {why}\n{self.tail()}")

    def stop(self, end: signal.Signals, *, timeout_seconds: float) -> None:
        """Ask the child to end with signal `end`, and kill it when it has not after the timeout."""
        self._send(end)
        self.thaw()  # a frozen child hears nothing
        if not self._exited.wait(timeout_seconds):
            self.kill()

    def kill(self) -> None:
        """End the child at once and wait until it is gone."""
        self._send(signal.SIGKILL)
        self._exited.wait()

    def freeze(self) -> None:
        """Suspend the child: it holds its sockets and answers nothing."""
        self._send(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let a frozen child go on."""
        self._send(signal.SIGCONT)

    def tail(self) -> str:
        """Return the end of what the child has written since its start."""
        try:
            with self._log.open("rb") as log:
                log.seek(self._log_start)
                return log.read().decode(errors="replace")[-_TAIL_CHARACTERS:]
        except OSError:
            return ""

    def _send(self, number: signal.Signals) -> None:
        if self._popen is not None and self.running:
            self._popen.send_signal(number)

    def _keep(self, started: Future[None], exited: threading.Event) -> None:
        try:
            self._popen = popen = self._spawn()
            guard = self._guard(popen)
        except BaseException as error:
            exited.set()
            started.set_exception(error)
            return
        started.set_result(None)
        popen.wait()
        if guard is not None:
            guard.dismiss()
        exited.set()

    def _guard(self, popen: subprocess.Popen[bytes]) -> OrphanGuard | None:
        try:
            return OrphanGuard(popen.pid) if self._watchdog else None
        except OSError:
            popen.kill()
            popen.wait()
            raise

    def _spawn(self) -> subprocess.Popen[bytes]:
        identity = self._identity
        with self._log.open("ab") as log:
            popen = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE if self._stdin else subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._directory,  # not ours, which may be out of reach for the child's user
                env=_clean_environment() | self._environment,
                user=identity.uid if identity.switches else None,
                group=identity.gid if identity.switches else None,
                extra_groups=[] if identity.switches else None,
                preexec_fn=entry(identity, bound=not self._watchdog),
                # Ctrl-C belongs to the program, which ends its servers in its own order.
                start_new_session=True,
            )
        if popen.stdin is not None:
            with contextlib.suppress(BrokenPipeError), popen.stdin:
                popen.stdin.write(self._stdin)
        return popen


def _clean_environment() -> dict[str, str]:
    """Return our environment without what would steer a server or translate its messages."""
    foreign = ("PG", "LC_", "LANG")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return kept | {"LC_ALL": "C"}
