"""Pausing durables: the broker delivers nothing of them to anybody for a while."""

from __future__ import annotations

from datetime import datetime, timedelta

from grns.model.envelope import rfc3339
from grns.nats.api import NO_CONSUMER, NO_STREAM, Api, ApiError
from grns.nats.config import NANOSECONDS


class Pauser:
    """Pauses by the broker's own clock: that of whoever asks may be years off."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def pause(self, stream: str, durable: str, seconds: float) -> bool:
        """Pause a durable for so long from now on, 0 ends it; False where there is no such durable.

        One that stays paused for at least half as long, and no longer than that, is left as it is.
        """
        try:
            info = await self._api.call(f"CONSUMER.INFO.{stream}.{durable}")
        except ApiError as error:
            if error.number in (NO_CONSUMER, NO_STREAM):
                return False
            raise
        left_seconds = info.get("pause_remaining", 0) / NANOSECONDS
        if not seconds / 2 <= left_seconds <= seconds:
            until = datetime.fromisoformat(info["ts"]) + timedelta(seconds=seconds)
            await self._api.call(f"CONSUMER.PAUSE.{stream}.{durable}", {"pause_until": rfc3339(until)})
        return True
