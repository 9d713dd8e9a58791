"""Results that are too long for their task: kept as blobs."""

from __future__ import annotations

import asyncio
import random

from grns.errors import RateLimitedError, UnavailableError
from grns.model.json import Limits, dumps
from grns.tasks.blobs import Blobs
from grns.worker.leases import Lease

_LONGEST_PAUSE_SECONDS = 1.0


class ResultOffload:
    """Keeps long results as blobs; the task has the reference.

    Args:
        blobs: where they are kept.
        least_bytes: a longer result is kept as a blob.
        most: what a result may have at all.
    """

    def __init__(self, blobs: Blobs, *, least_bytes: int, most: Limits) -> None:
        self._blobs = blobs
        self._least_bytes = least_bytes
        self.most = most

    async def shortened(self, text: str, lease: Lease) -> str:
        """Return a result as its task has it: as it is, or the reference to the blob.

        It waits for Postgres as long as the attempt may run.

        Raises:
            RateLimitedError: the blobs of the workspace would have more bytes together than they may.
        """
        if 4 * len(text) <= self._least_bytes or len(body := text.encode()) <= self._least_bytes:
            return text
        pause = 0.02
        while True:
            try:
                return dumps(await self._blobs.put_document(body))
            except RateLimitedError:
                raise
            except UnavailableError:
                if lease.ended is not None:
                    raise
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
