"""The TCP port of a server on 127.0.0.1, and whether the server behind it is ready."""

from __future__ import annotations

import json
import secrets
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

from grns.dev.servers.process import EarlyExit
from grns.errors import LocalServerError

HOST = "127.0.0.1"
TAKEN = ("Address already in use", "address already in use")

# Below the range of outgoing connections: a client that dials a dead server repeatedly could otherwise get
# and keep that server's port.
_LOWEST, _HIGHEST = 15_000, 32_000
_TRIES = 10
_PROTOCOL_3 = 196_608
_TIMEOUT_SECONDS = 2.0


class Port:
    """A port: fixed, or chosen at the first start and then kept."""

    def __init__(self, fixed: int | None = None, *, preferred: int | None = None) -> None:
        self._number = fixed
        self._preferred = preferred
        self._proven = False

    @property
    def number(self) -> int:
        """The number. Raises LocalServerError before the first start."""
        if self._number is None:
            raise LocalServerError("the server has no port before its first start")
        return self._number

    @property
    def proven(self) -> bool:
        """Whether a server of ours has listened on it."""
        return self._proven

    def open(self, start: Callable[[int], None]) -> None:
        """Call `start(number)` with one candidate after another until a server can listen."""
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
        raise LocalServerError(f"all ports that were tried on {HOST} are taken")

    def _candidates(self) -> Iterator[int]:
        if self._number is not None:
            yield self._number
            return
        if self._preferred is not None and is_free(self._preferred):
            yield self._preferred
        for _ in range(_TRIES):
            yield free_port()


def free_port() -> int:
    """Return a port without a listener."""
    for _ in range(1_000):
        number = _LOWEST + secrets.randbelow(_HIGHEST - _LOWEST)
        if is_free(number):
            return number
    raise LocalServerError(f"no free port between {_LOWEST} and {_HIGHEST}")


def is_free(number: int) -> bool:
    """Return whether a server could listen on this port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, number))
        except OSError:
            return False
    return True


def postgres_serves(port: int, *, user: str, database: str, pid_file: Path, pid: int) -> bool:
    """Return whether the Postgres process `pid` accepts connections: it asks `user` for a password."""
    if not _is_ready(pid_file, pid):
        return False
    parameters = f"user\0{user}\0database\0{database}\0\0".encode()
    start = struct.pack("!ii", 8 + len(parameters), _PROTOCOL_3) + parameters
    try:
        with socket.create_connection((HOST, port), _TIMEOUT_SECONDS) as connection:
            connection.sendall(start)
            return connection.recv(1) == b"R"  # an error (E) while it starts
    except OSError:
        return False


def nats_serves(port: int, *, name: str) -> bool:
    """Return whether the NATS server `name` listens on this port."""
    try:
        with (
            socket.create_connection((HOST, port), _TIMEOUT_SECONDS) as connection,
            connection.makefile("rb") as lines,
        ):
            verb, _, facts = lines.readline().partition(b" ")
        return verb == b"INFO" and bool(json.loads(facts)["server_name"] == name)
    except (OSError, ValueError, KeyError):
        return False


def _is_ready(pid_file: Path, pid: int) -> bool:
    # Postgres writes here when it accepts connections; the process id excludes another program on our port.
    try:
        lines = pid_file.read_text().splitlines()
    except OSError:
        return False
    return len(lines) > 7 and lines[0].strip() == str(pid) and lines[7].strip() == "ready"
