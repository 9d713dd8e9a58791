"""The first words of two protocols, enough to know that the server behind a port serves."""

import json
import socket
import struct
from pathlib import Path

from grns.dev.servers.port import HOST

_PROTOCOL_3 = 196_608
_TIMEOUT_SECONDS = 2.0


def postgres_serves(port: int, *, user: str, database: str, pid_file: Path, pid: int) -> bool:
    """Tell whether the Postgres process `pid` takes connections: it asks `user` for a password."""
    if not _is_ready(pid_file, pid):
        return False
    parameters = f"user\0{user}\0database\0{database}\0\0".encode()
    start = struct.pack("!ii", 8 + len(parameters), _PROTOCOL_3) + parameters
    try:
        with socket.create_connection((HOST, port), _TIMEOUT_SECONDS) as connection:
            connection.sendall(start)
            return connection.recv(1) == b"R"  # an error (E) until it lets anybody in
    except OSError:
        return False


def nats_serves(port: int, *, name: str) -> bool:
    """Tell whether the NATS server called `name` greets on this port."""
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
    # Postgres says here when it takes connections, and the process id tells it from a stranger on our port.
    try:
        lines = pid_file.read_text().splitlines()
    except OSError:
        return False
    return len(lines) > 7 and lines[0].strip() == str(pid) and lines[7].strip() == "ready"
