"""The secrets that HTTP workers were handed: they are looked for in what these say of their attempts."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any
from uuid import UUID

from grns.errors import SealedError
from grns.gateway.attempts import persist
from grns.gateway.shared_writes import OpenDatabase
from grns.model.claim_token import ClaimToken
from grns.model.secret import MASK, PartScrubber, Scrubber
from grns.postgres.database import Database, Session

_MOST_KNOWN = 1000
_MOST_FORMS = 1000


class _WholeScrubber(Scrubber):
    """Removes all that is said: the secrets cannot be opened here, or are too many to be looked for."""

    def part(self, text: str, start: int, end: int) -> str:
        return MASK

    def value(self, value: Any) -> Any:
        return MASK


class ClaimSecrets:
    """Knows the secrets of attempts: those of the payload, the checkpoint and the steps of their tasks.

    They are read once for each attempt: an HTTP worker cannot record new ones. Texts come as their worker has
    cut them.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[UUID, Scrubber | None] = OrderedDict()

    async def scrubber(self, open_database: OpenDatabase, token: ClaimToken) -> Scrubber | None:
        """Return what removes the secrets of an attempt from texts; None where it has none."""
        if token.lease_id not in self._known:

            async def ask(database: Database | Session) -> Scrubber | None:
                found: set[str] = set()
                for row in await database.run("read_attempt_secrets", token.task_id, token.workspace):
                    try:
                        _, scrubber = database.vault.open_text(row["document"], token.workspace)
                    except SealedError:  # another server has handed them out
                        return _WholeScrubber(())
                    found |= set() if scrubber is None else scrubber.texts
                if not found:
                    return None
                scrubber = PartScrubber(found)
                return scrubber if scrubber.forms <= _MOST_FORMS else _WholeScrubber(())

            read = await persist(open_database, ask)
            # The first one counts: it may have read a checkpoint that is replaced since.
            self._known.setdefault(token.lease_id, read)
            if len(self._known) > _MOST_KNOWN:
                self._known.popitem(last=False)
        self._known.move_to_end(token.lease_id)
        return self._known[token.lease_id]

    def forget(self, token: ClaimToken) -> None:
        """Forget the secrets of an attempt that has ended."""
        self._known.pop(token.lease_id, None)
