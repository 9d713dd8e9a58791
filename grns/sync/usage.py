"""What tasks have used, of synchronous applications."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from grns.model.usage import UsageItem, UsageSum

if TYPE_CHECKING:
    from grns.sync.client import SyncClient


@dataclass(frozen=True, slots=True)
class SyncUsage:
    """What tasks have used: the methods of `grns.Client.usage`, without `await`."""

    _client: SyncClient

    def of(self, task_id: str) -> Sequence[UsageItem]:
        """Return what the attempts of a task have used: see `UsageRecords.of`."""
        return self._client.ask(lambda client: client.usage.of(task_id))

    def sum(self, **options: Any) -> Sequence[UsageSum]:
        """Return what was used; options are those of `UsageRecords.sum`."""
        return self._client.ask(lambda client: client.usage.sum(**options))
