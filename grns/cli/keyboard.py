"""Single keys, as they are pressed: the terminal is left as it was, however this ends."""

from __future__ import annotations

import asyncio
import os
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def keys(on_key: Callable[[str], None]) -> Iterator[None]:
    """Call back for each key, and show none of them; where there is no terminal, there are no keys."""
    if not sys.stdin.isatty():
        yield
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    loop = asyncio.get_running_loop()

    def read() -> None:
        pressed = os.read(descriptor, 64).decode("utf-8", "replace")
        if not pressed:  # the terminal is gone
            loop.remove_reader(descriptor)
        for key in pressed:
            on_key(key)

    tty.setcbreak(descriptor)  # Ctrl-C is a signal still
    loop.add_reader(descriptor, read)
    try:
        yield
    finally:
        loop.remove_reader(descriptor)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
