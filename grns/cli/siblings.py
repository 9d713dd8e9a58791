"""Several processes of one worker: they end together, with the first that ends and with their parent."""

from __future__ import annotations

import math
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Sequence

PARENT = "--parent-descriptor"

# Time beyond the grace period: to write results, and to close connections.
_LAST_WORDS_SECONDS = 15.0

_Child = subprocess.Popen[bytes]


def run_together(commands: Sequence[Sequence[str]], *, grace_seconds: float) -> int:
    """Run commands until all have ended, and return the first exit code that is not 0.

    Signals are passed on. If a process ends without a signal, the others are terminated, and killed after
    the grace period: the supervisor of this process sees it end, and starts all of them again.
    """
    signals = _signal_pipe()  # before a process runs that a signal could leave behind
    guard, _held = os.pipe()  # its other end is closed by the end of this process, however it comes
    running = [_start([*command, PARENT, str(guard)], guard) for command in commands]
    codes: list[int] = []
    is_ending, is_own_signal, kill_at = False, False, math.inf
    while running:
        for number in _next_signals(signals, kill_at - time.monotonic()):
            if number == signal.SIGCHLD:
                continue
            if not is_own_signal:
                _signal_all(running, number)
            # A signal that we sent ourselves is not passed on: it would be a second request.
            is_ending, is_own_signal = True, False
        if time.monotonic() >= kill_at:
            _signal_all(running, signal.SIGKILL)
            kill_at = math.inf
        codes += [abs(child.returncode) for child in running if child.poll() is not None]
        running = [child for child in running if child.returncode is None]
        if codes and not is_ending:
            _signal_all(running, signal.SIGTERM)
            is_ending, is_own_signal = True, True
            kill_at = time.monotonic() + grace_seconds + _LAST_WORDS_SECONDS
    return next((code for code in codes if code), 0)


def _next_signals(signals: int, within_seconds: float) -> bytes:
    """Return the numbers of the next signals; empty after the time."""
    timeout = max(0.0, within_seconds) if within_seconds < math.inf else None
    readable, _, _ = select.select([signals], [], [], timeout)
    return os.read(signals, 1024) if readable else b""


def end_with_parent(descriptor: int) -> None:
    """Terminate this process as soon as its parent has ended."""
    os.set_inheritable(descriptor, False)

    def watch() -> None:
        os.read(descriptor, 1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="parent", daemon=True).start()


def _signal_pipe() -> int:
    """Return a descriptor from which the number of each signal can be read."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
        if signal.getsignal(number) is not signal.SIG_IGN or number == signal.SIGCHLD:  # as `nohup` does
            signal.signal(number, lambda _number, _frame: None)
    return reading


def _start(command: Sequence[str], guard: int) -> _Child:
    # A terminal's Ctrl-C is for the parent, which passes it on: twice would be at once.
    return subprocess.Popen(command, start_new_session=True, pass_fds=(guard,))


def _signal_all(children: Sequence[_Child], number: int) -> None:
    for child in children:
        # The end of a terminal is not a reason to lose results.
        child.send_signal(signal.SIGTERM if number == signal.SIGHUP else number)
