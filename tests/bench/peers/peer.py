"""What a peer is: another task queue that is given the same work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Protocol

PAYLOAD = json.dumps({"filling": "x" * 185})  # 200 bytes


class PeerUnavailable(Exception):
    """Says why a peer cannot be measured here: what is missing, did not start, or did not come to its end."""


class Peer(Protocol):
    """Another task queue, which installs itself and drains what it was given before."""

    name: str

    async def prepare(self, directory: Path) -> str:
        """Install the peer in a directory of its own under `directory`, and return its version.

        What is installed there already stays. Raises PeerUnavailable.
        """
        ...

    async def drain(self, postgres_url: str, rows: int) -> float:
        """Let one worker process run `rows` jobs that do nothing, and return jobs/s.

        The jobs carry `PAYLOAD` and are there before the worker starts, made with the peer's own bulk
        call. The time runs from the moment at which the first of them has been taken until none is
        left, so neither the start of a process nor the making of jobs counts. Both moments are seen
        from outside by asking every 20 ms, each late by the same 10 ms on average: what is asked costs
        next to nothing while jobs run. Peers that keep jobs in Postgres are asked through their tables,
        in a database of their own on the server of `postgres_url`, dropped afterwards; one with a broker
        says what it has run in a file. No process is left behind, whatever happens.

        Call `prepare` first. Raises PeerUnavailable.
        """
        ...
