"""What this room has to say leaves it through one callback, which cannot harm it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

OnFact = Callable[[str, dict[str, Any]], None]


def ignore(_name: str, _fields: dict[str, Any]) -> None:
    """Take no notice of a fact."""


def harmless(on_fact: OnFact) -> OnFact:
    """Return `on_fact`, made unable to raise: nats-py's read loop ends for good when a callback does."""

    def tell(name: str, fields: dict[str, Any]) -> None:
        with contextlib.suppress(Exception):
            on_fact(name, fields)

    return tell
