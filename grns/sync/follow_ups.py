"""Follow-ups for synchronous programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from grns.tasks.follow_ups import FollowUpState

if TYPE_CHECKING:
    from grns.sync.client import SyncClient


@dataclass(frozen=True, slots=True)
class SyncFollowUps:
    """What is submitted when tasks have ended: the methods of `grns.Client.follow_ups`, without `await`."""

    _client: SyncClient

    def put(self, pool: str, follow_ups: Sequence[Mapping[str, Any]]) -> Sequence[FollowUpState]:
        """Declare the follow-ups of a pool, instead of those that it has: see `FollowUps.put`."""
        return self._client.ask(lambda client: client.follow_ups.put(pool, follow_ups))

    def list(self, pool: str) -> Sequence[FollowUpState]:
        """Return the follow-ups of a pool, by the type that they follow."""
        return self._client.ask(lambda client: client.follow_ups.list(pool))
