"""Results as they are stored: with their secrets sealed, and as blobs if they are long."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from grns.errors import InvalidInputError, RateLimitedError, UnavailableError
from grns.model.blob import JSON_TYPE, Blob, BlobRules, as_document, kept_by
from grns.model.json import ANY_SIZE, Limits, dumps, loads_stored
from grns.model.secret import Path, check_clear
from grns.model.vault import Vault
from grns.postgres.database import Connection, run
from grns.tasks.blobs import Blobs
from grns.worker.leases import Lease

_LONGEST_PAUSE_SECONDS = 1.0


async def result_in(
    connection: Connection, result: Any, limits: Limits, rules: BlobRules, workspace: str
) -> str:
    """Return a result as its task has it, within the transaction that ends the task.

    A long one is kept as a blob in Postgres, also where there is a blob store: both commit, or none.

    Raises:
        InvalidInputError: it is not a JSON value; `sealed_value`: it plays a stored secret; `too_large`.
        RateLimitedError: the blobs of the workspace would have more bytes together than they may.
    """
    most = rules.document
    text = dumps(result, replace(most, document_bytes=max(most.document_bytes, limits.document_bytes)))
    check_clear(text)
    if len(body := text.encode()) <= limits.document_bytes:
        return text
    kept = kept_by(text)
    (row,) = await run(
        connection, "put_blob", body, JSON_TYPE, workspace, rules.most_bytes, rules.most_bytes_of_workspace
    )
    return dumps(as_document(Blob.of(loads_stored(row["ref"])), kept))


class ResultStore:
    """Makes of results what their tasks have: secrets are sealed, and long ones are kept as blobs.

    Args:
        blobs: where they are kept.
        vault: what seals secrets.
        least_bytes: a longer result is kept as a blob.
        most: what a result may have at all.
    """

    def __init__(self, blobs: Blobs, vault: Vault, *, least_bytes: int, most: Limits) -> None:
        self._blobs = blobs
        self._vault = vault
        self._least_bytes = least_bytes
        self.most = most

    @property
    def can_seal(self) -> bool:
        """Whether there is a key that seals secrets."""
        return self._vault.keys is not None

    async def stored(self, text: str, secret: Sequence[Path], lease: Lease) -> str:
        """Return a result as its task has it: as it is, or the reference to the blob.

        It waits for Postgres as long as the attempt may run.

        Args:
            text: the result as JSON.
            secret: where it is secret.
            lease: that of the attempt.

        Raises:
            InvalidInputError: `sealed_value`: it plays a stored secret; `no_keys`; `too_large`: it has
                secrets, which are sealed in rows alone, where a rotation finds them.
            RateLimitedError: the blobs of the workspace would have more bytes together than they may.
        """
        check_clear(text)
        if secret:
            hidden = self._vault.hide(loads_stored(text), secret, lease.claim.workspace)
            text = dumps(hidden, ANY_SIZE)
            if len(text.encode()) > self._least_bytes:
                raise InvalidInputError(
                    "too_large",
                    f"a result with secrets has up to {self._least_bytes} bytes: put a blob beside",
                )
            return text
        if 4 * len(text) <= self._least_bytes or len(text.encode()) <= self._least_bytes:
            return text
        pause = 0.02
        while True:
            try:
                return dumps(await self._blobs.put_document(text))
            except RateLimitedError:
                raise
            except UnavailableError:
                if lease.ended is not None:
                    raise
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
