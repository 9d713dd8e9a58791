"""One connection of a client: closed where nothing comes of it for long, so that nobody can keep them all."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

# Of the descriptors that a process has, most are for others: the daemons may run in it, too.
_MOST = 500
_LOOK_SECONDS = 20.0


class Connection(H11Protocol):
    """uvicorn's connection, looked at now and then.

    It is closed where it looks as it did the last time: without a request, with one that does not become
    whole, or with an answer that nobody reads. However slowly bytes come, a request has to be there by then.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, unless there are enough."""
        super().connection_made(transport)
        self._state: tuple[Any, ...] = ()
        self._looking: asyncio.TimerHandle | None = None
        if len(self.connections) > _MOST:
            transport.abort()
        else:
            self._look_later()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        if self._looking is not None:
            self._looking.cancel()
        super().connection_lost(exc)

    def _look_later(self) -> None:
        self._looking = self.loop.call_later(_LOOK_SECONDS, self._look)

    def _look(self) -> None:
        state = (self.cycle, self._is_answered, self.transport.get_write_buffer_size())
        if state == self._state and not self._is_at_work:
            self.transport.abort()
            return
        self._state = state
        self._look_later()

    @property
    def _is_answered(self) -> bool:
        return self.cycle is not None and self.cycle.response_complete

    @property
    def _is_at_work(self) -> bool:
        """Say whether it is we who are waited for."""
        if self.cycle is None or self._is_answered:
            return False
        return not self.cycle.more_body and not self.flow.write_paused
