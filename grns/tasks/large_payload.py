"""Payloads that are too long for a task: their longest fields are kept as blobs, and given to handlers whole.

What a unique key names stays in its place, and so do secrets, which are sealed in rows alone, where a
rotation finds them. Short fields stay, too: what limits and other languages read is usually one of these.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from grns.errors import InvalidInputError
from grns.model.blob import BLOB, JSON_TYPE, as_part, with_documents
from grns.model.json import ANY_SIZE, Limits, dumps, loads_stored
from grns.postgres.database import Database, Session
from grns.tasks.blobs import Blobs
from grns.tasks.secrets import declared_paths
from grns.tasks.submit import Prepared

TOO_LONG = frozenset({"too_large", "too_many_nodes"})
"""What is said of a payload that can be made shorter."""
_LEAST_BYTES = 4096  # of a field that is worth a blob
_REFERENCE_BYTES, _REFERENCE_NODES = 160, 5
_MARK, _REFERENCE = '"is_part"', f'"{BLOB}"'.encode()


async def shorten(database: Database | Session, prepared: Prepared, limits: Limits) -> None:
    """Keep the longest fields of a payload as blobs, as many as it takes for it to be within the limits.

    Raises:
        InvalidInputError: `too_large`, `too_many_nodes`: the rest is too long all the same; nothing was kept.
        RateLimitedError: the blobs of the workspace would have too many bytes together.
        UnavailableError: Postgres or the blob store cannot be reached; nothing was submitted.
    """
    document = loads_stored(prepared.payload)
    if _problem(document, limits) is None:
        return
    said = prepared.submission
    if prepared.secret is None:  # what is read here is sealed later, and no other paths
        prepared.secret = (await declared_paths(database, said.workspace)).get(said.task_type, ())
    fixed = {path[0] if path else "*" for path in prepared.secret}
    if said.unique is not None and said.unique.key is not None:
        fixed.add(said.unique.key.partition(".")[0])
    # Sorted: the same payload in another order is the same submission.
    texts = {name: _sorted(value) for name, value in document.items() if not {name, "*"} & fixed}
    # What refers to blobs stays, too: what is in a blob keeps no other one.
    texts = {name: text for name, text in texts.items() if _REFERENCE not in text}
    size, nodes = len(prepared.payload.encode()), _nodes(document)
    chosen: list[str] = []
    for name in sorted(texts, key=lambda name: (-len(texts[name]), name)):
        if len(texts[name]) < _LEAST_BYTES or (size <= limits.document_bytes and nodes <= limits.nodes):
            break
        chosen.append(name)
        size += _REFERENCE_BYTES - len(texts[name])
        nodes += _REFERENCE_NODES - _nodes(document[name])
    reference = {member: "x" * (_REFERENCE_BYTES // 4 - 6) for member in "1234"}
    rest = document | dict.fromkeys(chosen, reference)
    if (problem := _problem(rest, limits)) is not None:
        raise problem
    blobs = Blobs(database, said.workspace)
    for name in chosen:
        document[name] = as_part(await blobs.put(texts[name], media_type=JSON_TYPE))
    prepared.payload = dumps(document, limits)


async def whole(blobs: Blobs, payload: str, most_bytes: int) -> str:
    """Return a payload with its parts in place of the references to them.

    Raises:
        NotFoundError: a blob is not there any more.
        InvalidInputError: `bad_document`, `too_large`: what is in them cannot be a payload.
    """
    if _MARK not in payload:
        return payload
    document = await with_documents(loads_stored(payload), blobs.get, most_bytes)
    return await asyncio.to_thread(dumps, document, ANY_SIZE)  # it takes a while, and others share this loop


def _problem(document: Any, limits: Limits) -> InvalidInputError | None:
    try:
        dumps(document, limits)
    except InvalidInputError as error:
        if error.code not in TOO_LONG:
            raise
        return error
    return None


def _sorted(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()


def _nodes(value: Any) -> int:
    """Return how many values there are in one, itself included."""
    found, pending = 0, [value]
    while pending:
        item = pending.pop()
        found += 1
        if isinstance(item, dict):
            pending += item.values()
        elif isinstance(item, list):
            pending += item
    return found
