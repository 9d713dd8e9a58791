"""Places of one kind in one process, such as waiting claims: no workspace holds them all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from grns.access.principals import Principal
from grns.errors import RateLimitedError


class WorkspaceLimiter:
    """A fixed number of places, and who holds them.

    A workspace may take another place only while it holds fewer than are free, and one key no more than
    `most_of_one`. Alone, a workspace gets half of all places; two get a third each. Some always stay free
    for a workspace that holds none. A key of all workspaces is counted like a workspace.
    """

    def __init__(self, name: str, *, most: int, most_of_one: int) -> None:
        self._name = name
        self.most = most
        self.most_of_one = most_of_one
        self._of_actor: Counter[str] = Counter()
        self._of_share: Counter[str] = Counter()

    def take(self, holder: Principal) -> None:
        """Take a place; `RateLimitedError` if the key or its workspace has its share."""
        taken = self._of_actor.total()
        if self._of_actor[holder.actor] >= self.most_of_one:
            raise RateLimitedError(f"too many {self._name}: this key has {self.most_of_one}")
        if self._of_share[holder.share] >= self.most - taken:
            raise RateLimitedError(f"too many {self._name}: {taken} of {self.most} are taken")
        self._of_actor[holder.actor] += 1
        self._of_share[holder.share] += 1

    def give_back(self, holder: Principal) -> None:
        """Give a place back."""
        for counter, name in ((self._of_actor, holder.actor), (self._of_share, holder.share)):
            counter[name] -= 1
            if not counter[name]:
                del counter[name]

    @contextmanager
    def place(self, holder: Principal) -> Iterator[None]:
        """Hold a place for a while; raises as `take` does."""
        self.take(holder)
        try:
            yield
        finally:
            self.give_back(holder)
