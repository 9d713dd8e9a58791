"""Reading streams: their state, single messages, and messages that no durable serves."""

from __future__ import annotations

import asyncio
import base64
import random
from collections.abc import AsyncIterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from grns.errors import NotFoundError
from grns.model import subjects
from grns.nats.api import NO_MESSAGE, NO_SEQUENCE, NO_STREAM, NOT_DELETED, Api, ApiError
from grns.nats.messages import StoredMessage, StreamState, read_headers
from grns.nats.provision import EPOCH, filters

_SUBJECTS_PER_LOOK, _MESSAGES_PER_SUBJECT, _MESSAGES_PER_LOOK = 256, 10, 100
_READ_AT_ONCE = 100
_NOT_THERE = ("no message found", "stream store EOF")


class Streams:
    """Reads streams through the API."""

    def __init__(self, api: Api, prefix: str) -> None:
        self._api = api
        self._prefix = prefix
        # Priority subjects get their durable with the pool's first worker; until then workers poll Postgres.
        self._priority_subjects = f"{prefix}{subjects.shared_execute()}."

    async def state(self, stream: str) -> StreamState:
        """Return the state of a stream."""
        info = await self._call("STREAM.INFO", stream)
        state, config = info["state"], info["config"]
        # A stream that another tool created has no epoch; its creation time serves as well.
        epoch = (config.get("metadata") or {}).get(EPOCH) or info["created"]
        first_at = datetime.fromisoformat(state["first_ts"]) if state["messages"] else None
        return StreamState(
            epoch=epoch,
            first_seq=state["first_seq"],
            last_seq=state["last_seq"],
            messages=state["messages"],
            first_at=first_at,
            drops_oldest=config["retention"] == "limits" and config.get("max_msgs_per_subject", -1) <= 0,
        )

    async def clock(self, stream: str) -> datetime:
        """Return the time by the clock of the server that leads a stream."""
        return datetime.fromisoformat((await self._call("STREAM.INFO", stream))["ts"])

    async def last_message(self, stream: str) -> StoredMessage | None:
        """Return the newest message that the stream still has."""
        return _stored(stream, await self._message(stream, {"last_by_subj": ">"}))

    async def message_at(self, stream: str, seq: int) -> StoredMessage | None:
        """Return the message with this number; None if the stream does not have it any more."""
        return _stored(stream, await self._message(stream, {"seq": seq}))

    async def stored(self, stream: str, *, since: datetime, until: datetime) -> AsyncIterator[StoredMessage]:
        """Read the messages stored between two times by their numbers, many at a time."""
        seq, last_seq = await self._first_since(stream, since)
        while seq <= last_seq:
            numbers = range(seq, min(seq + _READ_AT_ONCE, last_seq + 1))
            for found in await asyncio.gather(*(self._message(stream, {"seq": n}) for n in numbers)):
                message = _stored(stream, found)
                if message is not None and message.stored_at > until:
                    return
                if message is not None:
                    yield message
            seq = numbers.stop

    async def _first_since(self, stream: str, since: datetime) -> tuple[int, int]:
        """Return the first number stored at that time or later, and the last number."""
        state = (await self._call("STREAM.INFO", stream))["state"]
        low, top = max(1, state["first_seq"]), state["last_seq"] + 1
        while low < top:
            middle = (low + top) // 2
            found = await self._message(stream, {"next_by_subj": ">", "seq": middle})
            message = _stored(stream, found)
            if message is not None and message.stored_at < since:
                low = message.seq + 1
            else:
                top = middle
        return low, state["last_seq"]

    async def discard(self, stream: str, seq: int) -> None:
        """Remove one message, if it is there."""
        try:
            await self._call("STREAM.MSG.DELETE", stream, {"seq": seq, "no_erase": True})
        except ApiError as error:
            is_gone = error.number == NOT_DELETED and error.description in _NOT_THERE
            if not is_gone and error.number != NO_SEQUENCE:
                raise

    async def unserved(self, stream: str, *, older_than_seconds: float) -> list[StoredMessage]:
        """Return old messages on subjects without a durable, by the broker's clock, oldest first."""
        info = await self._call("STREAM.INFO", stream)
        durables = [durable["config"] async for durable in self._api.durables(self._prefix + stream)]
        served = [pattern for durable in durables for pattern in filters(durable)]
        before = datetime.fromisoformat(info["ts"]) - timedelta(seconds=older_than_seconds)
        unserved = [
            subject
            async for subject in self._subjects(stream)
            if not subject.startswith(self._priority_subjects)
            and not any(subjects.matches(pattern, subject) for pattern in served)
        ]
        found: list[StoredMessage] = []
        # A sample, so that many subjects with young messages cannot hide the old ones for ever.
        for subject in random.sample(unserved, min(len(unserved), _SUBJECTS_PER_LOOK)):
            found += [message async for message in self._old_messages(stream, subject, before)]
        return sorted(found, key=lambda message: message.seq)[:_MESSAGES_PER_LOOK]

    async def _old_messages(
        self, stream: str, subject: str, before: datetime
    ) -> AsyncIterator[StoredMessage]:
        seq = 1
        for _ in range(_MESSAGES_PER_SUBJECT):
            message = _stored(stream, await self._message(stream, {"next_by_subj": subject, "seq": seq}))
            if message is None or message.stored_at > before:
                return
            yield message
            seq = message.seq + 1

    async def _subjects(self, stream: str) -> AsyncIterator[str]:
        offset, total = 0, 1
        while offset < total:
            page = await self._call("STREAM.INFO", stream, {"subjects_filter": ">", "offset": offset})
            named = page["state"].get("subjects") or {}
            if not named:
                return
            for subject in named:
                yield subject
            offset, total = offset + len(named), page.get("total", 0)

    async def _message(self, stream: str, request: Mapping[str, Any]) -> dict[str, Any] | None:
        try:
            answer = await self._call("STREAM.MSG.GET", stream, request)
        except ApiError as error:
            if error.number == NO_MESSAGE:
                return None
            raise
        found: dict[str, Any] = answer["message"]
        found["subject"] = found["subject"].removeprefix(self._prefix)
        return found

    async def _call(
        self, operation: str, stream: str, request: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        operation = f"{operation}.{self._prefix}{stream}"
        try:
            return await self._api.call(operation, request)
        except ApiError as error:
            if error.number == NO_STREAM:
                raise NotFoundError(f"the broker has no such stream ({operation})") from error
            raise


def _stored(stream: str, message: Mapping[str, Any] | None) -> StoredMessage | None:
    if message is None:
        return None
    body = base64.b64decode(message.get("data", ""))
    headers = read_headers(base64.b64decode(message.get("hdrs", "")))
    stored_at = datetime.fromisoformat(message["time"])
    return StoredMessage(stream, message["seq"], message["subject"], body, headers, stored_at)
