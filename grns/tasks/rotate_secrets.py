"""Rotation: seals stored secrets again by the first key, while everything runs."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from grns.errors import SealedError, SettingsError
from grns.model.json import ANY_SIZE, dumps, loads_stored
from grns.model.seal import key_of
from grns.model.secret import replace_secrets
from grns.model.vault import Vault
from grns.postgres.database import Database, Row

PAGE_ROWS = 200
"""Rows that one statement looks at: with documents of 256 KiB each, they are 50 MiB."""
_KINDS = ("c", "e", "m", "o", "r", "s", "t", "w")
_MOST_PASSES = 20
_PAUSE_SECONDS = 0.5


@dataclass(slots=True)
class SealedRows:
    """How many rows have secrets, by the name of the key that sealed one; `total` counts each row once."""

    total: int = 0
    by_key: Counter[str] = field(default_factory=Counter)


async def count_sealed(database: Database) -> SealedRows:
    """Count tasks, steps, checkpoints, messages, schedules, operations and webhooks with secrets, by key."""
    found = SealedRows()
    async for rows in _pages(database):
        for row in rows:
            found.total += 1
            found.by_key.update(_keys_in(loads_stored(row["document"])))
    return found


async def rotate(database: Database, on_progress: Callable[[int], None] = lambda done: None) -> int:
    """Seal all secrets by the first key; return how many rows were changed.

    A row that another transaction holds, or that changes meanwhile, is looked at again in the next pass. What
    was written to the log before keeps the old key until it is deleted by retention.

    Raises:
        SealedError: one cannot be opened; what was changed before stays so.
        SettingsError: there are no keys, or rows are held for very long.
    """
    if database.vault.keys is None:
        raise SettingsError("set GRNS_KEYS_FILE: its first key seals the secrets again")
    changed = 0
    for _ in range(_MOST_PASSES):
        left = 0
        async for rows in _pages(database):
            old = [
                row
                for row in rows
                if _keys_in(loads_stored(row["document"])) - {database.vault.keys.current.name}
            ]
            old, texts = _resealed_all(database.vault, old)
            if old:
                count = await _reseal(database, old, texts)
                changed, left = changed + count, left + len(old) - count
                on_progress(changed)
        if not left:
            return changed
        await asyncio.sleep(_PAUSE_SECONDS)
    raise SettingsError(f"{left} rows are held by other transactions, or change all the time: run it again")


async def _pages(database: Database) -> AsyncIterator[Sequence[Row]]:
    """Read all documents with secrets, one kind of row after the other."""
    for kind in _KINDS:
        place, is_full = "", True
        while is_full:
            rows = await database.run("read_sealed", place, PAGE_ROWS, kind)
            if sealed := [row for row in rows if row["document"] is not None]:
                yield sealed
            is_full = bool(rows) and rows[-1]["number"] == PAGE_ROWS
            place = rows[-1]["place"] if is_full else ""


def _resealed_all(vault: Vault, rows: Sequence[Row]) -> tuple[list[Row], list[str]]:
    """Return rows with their new texts, without messages that do not open: SQL takes forged ones."""
    done: list[tuple[Row, str]] = []
    for row in rows:
        try:
            done.append((row, _resealed(vault, row)))
        except SealedError as error:
            if not row["place"].startswith("m"):
                raise SealedError(error.code, f"{row['place']}: {error}") from error
    return [row for row, _ in done], [text for _, text in done]


async def _reseal(database: Database, rows: Sequence[Row], texts: Sequence[str]) -> int:
    answer = await database.run(
        "reseal", [row["place"] for row in rows], [row["document"] for row in rows], list(texts)
    )
    return int(answer[0]["changed"])


def _resealed(vault: Vault, row: Row) -> str:
    if row["place"].startswith("w"):
        return vault.reseal_key(row["document"].encode(), row["workspace"]).decode()
    document = vault.reseal(loads_stored(row["document"]), row["workspace"], mail=row["mail"] or ())
    return dumps(document, ANY_SIZE)


def _keys_in(document: Any) -> set[str]:
    """Return the names of the keys that sealed the secrets of a document."""
    names: set[str] = set()
    replace_secrets(document, lambda sealed: names.add(key_of(sealed)))
    return names
