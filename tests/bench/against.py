"""Other queues, doing the same work on the same machine and the same Postgres server, in the same rounds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench.figure import TASKS, Figures
from tests.bench.ground import Ground
from tests.bench.size import Sizes

if TYPE_CHECKING:
    from tests.bench.peers import Peer


class Peers:
    """Those that could be installed here."""

    def __init__(self, peers: Sequence[Peer]) -> None:
        self._peers = list(peers)

    async def measure(self, ground: Ground, sizes: Sizes, figures: Figures) -> None:
        """Have each drain as many no-op tasks of 200 bytes as grns does; one that cannot is asked no more."""
        from tests.bench.peers import PeerUnavailable

        for peer in list(self._peers):
            await ground.admin.execute("checkpoint")
            try:
                rate = await peer.drain(ground.postgres.url, sizes.rows)
            except PeerUnavailable as error:
                self._peers.remove(peer)
                figures.remarks.append(f"{peer.name} is measured no more: {error}")
            else:
                figures.note(figure_of(peer.name), rate, TASKS)


async def prepare(directory: Path, figures: Figures) -> tuple[Peers, dict[str, str]]:
    """Install all that can be; returns these, and their versions. The others are remarked upon."""
    from tests.bench.peers import PEERS, PeerUnavailable

    directory.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240
    found: list[Peer] = []
    versions: dict[str, str] = {}
    for peer in PEERS.values():
        try:
            versions[peer.name] = await peer.prepare(directory)
        except PeerUnavailable as error:
            figures.remarks.append(f"{peer.name} is not measured: {error}")
        else:
            found.append(peer)
    return Peers(found), versions


def figure_of(name: str) -> str:
    """Return the name of the figure of a peer: `peers.graphile_worker` for Graphile Worker."""
    return "peers." + re.sub(r"[^a-z0-9]+", "_", name.lower())
