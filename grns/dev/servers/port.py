"""The TCP port of one server on 127.0.0.1, chosen once and kept."""

import secrets
import socket
from collections.abc import Callable, Iterator

from grns.dev.servers.process import EarlyExit
from grns.errors import LocalServerError

HOST = "127.0.0.1"
TAKEN = ("Address already in use", "address already in use")

# Below the range from which systems take the ports of outgoing connections: a client that dials a
# dead server again and again would otherwise be given that server's own port one day, and keep it.
_LOWEST, _HIGHEST = 15_000, 32_000
_TRIES = 10


class Port:
    """Hold the number of a port: fixed by the user, or found at the first start and then kept."""

    def __init__(self, fixed: int | None = None, *, preferred: int | None = None) -> None:
        self._number = fixed
        self._preferred = preferred
        self._proven = False

    @property
    def number(self) -> int:
        """Return the number; raises LocalServerError before a first start has chosen it."""
        if self._number is None:
            raise LocalServerError("the server has no port before its first start")
        return self._number

    @property
    def proven(self) -> bool:
        """Tell whether a server of ours has listened here before."""
        return self._proven

    def open(self, start: Callable[[int], None]) -> None:
        """Call `start(number)` with one candidate after another until a server could listen there."""
        for number in self._candidates():
            try:
                start(number)
            except EarlyExit as end:
                if not any(text in end.log for text in TAKEN):
                    raise
                if self._number is not None:
                    raise LocalServerError(f"port {number} on {HOST} is taken") from end
            else:
                self._number, self._proven = number, True
                return
        raise LocalServerError(f"every port that was tried on {HOST} is taken")

    def _candidates(self) -> Iterator[int]:
        if self._number is not None:
            yield self._number
            return
        if self._preferred is not None and is_free(self._preferred):
            yield self._preferred
        for _ in range(_TRIES):
            yield free_port()


def free_port() -> int:
    """Return a port on which nobody listens now."""
    for _ in range(1_000):
        number = _LOWEST + secrets.randbelow(_HIGHEST - _LOWEST)
        if is_free(number):
            return number
    raise LocalServerError(f"no free port between {_LOWEST} and {_HIGHEST}")


def is_free(number: int) -> bool:
    """Tell whether a server could listen on this port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, number))
        except OSError:
            return False
    return True
