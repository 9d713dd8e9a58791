"""Processes side by side: they end together, with the first that ends and with their parent."""

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

# What a process takes beside its grace: to write what was under way, and to close its connections.
_LAST_WORDS_SECONDS = 15.0

_Child = subprocess.Popen[bytes]


def run_together(commands: Sequence[Sequence[str]], *, grace_seconds: float) -> int:
    """Run commands until all have ended, and return the first code that is no success.

    What this process is asked by a signal, they are asked. Where one ends that nobody has asked, the
    others are asked to end, and killed where they do not within their grace: whoever watches over this
    process sees it end, and starts all of them anew.
    """
    heard = _hear_signals()  # before there is anybody whom a signal would leave behind
    guard, _held = os.pipe()  # its other end is closed by the end of this process, however it comes
    running = [_start([*command, PARENT, str(guard)], guard) for command in commands]
    codes: list[int] = []
    is_asked, is_of_ours, kill_at = False, False, math.inf
    while running:
        for number in _next_signals(heard, kill_at - time.monotonic()):
            if number == signal.SIGCHLD:
                continue
            if not is_of_ours:
                _ask(running, number)
            # What we have asked of our own accord they are not to hear again, as a second request.
            is_asked, is_of_ours = True, False
        if time.monotonic() >= kill_at:
            _ask(running, signal.SIGKILL)
            kill_at = math.inf
        codes += [abs(child.returncode) for child in running if child.poll() is not None]
        running = [child for child in running if child.returncode is None]
        if codes and not is_asked:
            _ask(running, signal.SIGTERM)
            is_asked, is_of_ours = True, True
            kill_at = time.monotonic() + grace_seconds + _LAST_WORDS_SECONDS
    return next((code for code in codes if code), 0)


def _next_signals(heard: int, within_seconds: float) -> bytes:
    """Return the numbers of the signals that come next, none where none comes in time."""
    timeout = max(0.0, within_seconds) if within_seconds < math.inf else None
    readable, _, _ = select.select([heard], [], [], timeout)
    return os.read(heard, 1024) if readable else b""


def end_with_parent(descriptor: int) -> None:
    """Ask this process to end as soon as the one that started it has ended."""
    os.set_inheritable(descriptor, False)

    def watch() -> None:
        os.read(descriptor, 1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="parent", daemon=True).start()


def _hear_signals() -> int:
    """Return a descriptor from which the number of each signal can be read."""
    heard, told = os.pipe()
    os.set_blocking(told, False)
    signal.set_wakeup_fd(told)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
        if signal.getsignal(number) is not signal.SIG_IGN or number == signal.SIGCHLD:  # as `nohup` does
            signal.signal(number, lambda _number, _frame: None)
    return heard


def _start(command: Sequence[str], guard: int) -> _Child:
    # A terminal's Ctrl-C is for the parent, which passes it on: twice would be at once.
    return subprocess.Popen(command, start_new_session=True, pass_fds=(guard,))


def _ask(children: Sequence[_Child], number: int) -> None:
    for child in children:
        # A terminal that is gone is no reason to give nothing back.
        child.send_signal(signal.SIGTERM if number == signal.SIGHUP else number)
