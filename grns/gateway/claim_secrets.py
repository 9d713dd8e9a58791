"""The secrets that HTTP workers were handed: they are looked for in what these say of their attempts."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any
from uuid import UUID

from grns.errors import SealedError
from grns.gateway.attempts import persist
from grns.gateway.shared_writes import OpenDatabase
from grns.model.claim_token import ClaimToken
from grns.model.secret import MASK, Scrubber
from grns.postgres.database import Database, Session

_MOST_KNOWN = 1000


class _WholeScrubber(Scrubber):
    """Removes all that is said: the key that opens the secrets is not here, so they cannot be found."""

    def part(self, text: str, start: int, end: int) -> str:
        return MASK

    def value(self, value: Any) -> Any:
        return MASK


class ClaimSecrets:
    """Knows the secrets of attempts: those of the payload, the checkpoint and the steps of their tasks.

    They are read once for each attempt: an HTTP worker cannot record new ones.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[UUID, Scrubber | None] = OrderedDict()

    async def scrubber(self, open_database: OpenDatabase, token: ClaimToken) -> Scrubber | None:
        """Return what removes the secrets of an attempt from texts; None where it has none."""
        if token.lease_id not in self._known:

            async def ask(database: Database | Session) -> Scrubber | None:
                found: Scrubber | None = None
                for row in await database.run("read_attempt_secrets", token.task_id, token.workspace):
                    try:
                        _, scrubber = database.vault.open_text(row["document"], token.workspace)
                    except SealedError:  # another server has handed them out
                        return _WholeScrubber(())
                    found = scrubber if found is None else found.with_those_of(scrubber)
                return found

            self._known[token.lease_id] = await persist(open_database, ask)
            if len(self._known) > _MOST_KNOWN:
                self._known.popitem(last=False)
        self._known.move_to_end(token.lease_id)
        return self._known[token.lease_id]
