"""The bootstrap token, in the URL that a process prints at its start."""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass, field


def _token() -> str:
    return f"grns_bootstrap_{secrets.token_hex(32)}"


@dataclass(frozen=True, slots=True)
class Invitation:
    """A random token of one process.

    Without a `key`, the token creates the first API key of the installation and does nothing else: it is
    worthless once there is a key. With a key, as under `grns dev`, its URL opens the dashboard with that key
    for as long as the process runs. The token is stored nowhere: who can read Postgres or a file of grns
    does not learn it.
    """

    key: str | None = field(default=None, repr=False)
    token: str = field(default_factory=_token, repr=False)

    def matches(self, text: str) -> bool:
        """Say whether the text is the token, in a time that tells nothing of how much of it is right."""
        return hmac.compare_digest(text.encode("utf-8", "surrogatepass"), self.token.encode())

    def path(self) -> str:
        """Return the path of the page that takes the token."""
        return f"/login?token={self.token}"
