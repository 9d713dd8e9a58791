"""Payloads as handlers get them: with their secrets, and whole."""

from __future__ import annotations

from dataclasses import dataclass

from grns.errors import InvalidInputError, NotFoundError, SealedError, UnavailableError
from grns.model.failure import failed
from grns.model.outcome import Claim, Outcome
from grns.postgres.database import Database
from grns.tasks.blobs import Blobs
from grns.tasks.large_payload import whole

PASSING = frozenset({"no_key", "blob_store"})
"""Why a payload cannot be opened here or now, though it may be elsewhere or later."""

_MISSING_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Payloads:
    """Opens the payloads of claimed tasks of a workspace."""

    database: Database
    workspace: str

    async def open(self, claim: Claim) -> None:
        """Give a claim its payload as it was submitted, and what removes its secrets from texts.

        Raises:
            SealedError: `no_key`, `not_ours`: a secret cannot be opened here; `blob_store`: a blob cannot be
                read now; `blob_missing`: it is not there any more; `bad_document`, `too_large`: what its
                references stand for cannot be a payload.
        """
        claim.payload, claim.scrubber = self.database.vault.open_text(claim.payload, claim.workspace)
        blobs, most = Blobs(self.database, self.workspace), self.database.blob_rules.most_bytes
        try:
            claim.payload = await whole(blobs, claim.payload, most)
        except InvalidInputError as error:
            raise SealedError(error.code, str(error)) from error
        except NotFoundError as error:
            raise SealedError("blob_missing", str(error)) from error
        except UnavailableError as error:
            raise SealedError("blob_store", str(error)) from error


def cannot_open(claim: Claim, error: SealedError) -> Outcome:
    """Return the outcome of an attempt whose payload opens nowhere; a missing blob may be put again."""
    is_missing = error.code == "blob_missing"
    return failed(
        claim.task_type, error.code, str(error), is_final=not is_missing, backoff_seconds=_MISSING_SECONDS
    )
