"""How a command with something to clean up ends when it is asked to."""

from __future__ import annotations

import asyncio
import signal
import threading


def end_on_signals() -> None:
    """Let SIGTERM and SIGHUP cancel the task that calls this, as Ctrl-C does.

    A signal that was ignored from the beginning, as with `nohup`, stays so. Signals come to
    the main thread only: elsewhere this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    loop, work = asyncio.get_running_loop(), asyncio.current_task()

    def end() -> None:
        if work is not None and not work.cancelling():  # an init system may say it twice
            work.cancel()

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, end)
