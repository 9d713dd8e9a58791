"""Wait on standard input for a byte (go home) or its end (kill the process named in argv[1]).

Runs as a script of its own, so it imports nothing of grns.
"""

import contextlib
import os
import signal
import sys


def main() -> None:
    """Guard one process until told otherwise."""
    if os.read(0, 1) == b"":
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(sys.argv[1]), signal.SIGKILL)


if __name__ == "__main__":
    main()
