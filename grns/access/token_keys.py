"""The secrets that claim tokens are signed with: kept in Postgres, shared by all API processes, rotated."""

from __future__ import annotations

import asyncio
import time

from grns.model.claim_token import ClaimToken, ShownClaimToken, SigningKey
from grns.model.subjects import INSTALLATION
from grns.postgres import audit_log as change
from grns.postgres.database import Database, run

_FRESH_SECONDS = 5.0
_LEAST_SECONDS = 0.5


class TokenKeys:
    """Signs and verifies claim tokens with the installation's secrets, which it reads again every 5 s.

    A token whose key it does not know makes it read them at once, but at most twice a second: tokens that
    are made up cannot keep Postgres busy.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: dict[int, SigningKey] = {}
        self._read_at = float("-inf")
        self._reading = asyncio.Lock()

    async def latest(self) -> SigningKey:
        """Return the key that new tokens are signed with."""
        await self._read(_FRESH_SECONDS)
        return self._known[max(self._known)]

    async def verify(self, shown: ShownClaimToken) -> ClaimToken:
        """Return the ticket that a token holds. Raises InvalidInputError: `bad_token`."""
        await self._read(_FRESH_SECONDS)
        if shown.key_id not in self._known:
            await self._read(_LEAST_SECONDS)
        return shown.verify(self._known.get(shown.key_id))

    async def _read(self, fresh_seconds: float) -> None:
        """Read the keys, unless that was done within so many seconds."""
        async with self._reading:
            if time.monotonic() - self._read_at < fresh_seconds:
                return
            rows = await self._database.run("read_token_keys")
            self._known = {row["id"]: SigningKey(row["id"], row["secret"]) for row in rows}
            self._read_at = time.monotonic()


async def rotate(database: Database, *, actor: str | None) -> int:
    """Sign with a new secret from now on, and return its number.

    Tokens signed with the previous secret stay valid until the next rotation, those before it end now.
    """
    async with database.transaction() as connection:
        (row,) = await run(connection, "rotate_token_key")
        number: int = row["id"]
        await change.note(
            connection,
            workspace=INSTALLATION,
            kind="evt.token_key.rotated",
            actor=actor,
            payload={"number": number},
        )
    return number
