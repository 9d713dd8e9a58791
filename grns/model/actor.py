"""Actors: the name that the event log stores with a change, such as `cli:ann@desk` or `key:7f3a`."""

from __future__ import annotations

import getpass
import os
import re
import socket

from grns.errors import InvalidInputError

PATTERN = r"^[!-~]{1,255}$"
_STRANGE = re.compile(r"[^A-Za-z0-9._-]")
_LONGEST_NAME = 100


def check(actor: object) -> str:
    """Return a valid `actor`. Raises InvalidInputError: `bad_actor`."""
    if isinstance(actor, str) and re.fullmatch(PATTERN, actor):
        return actor
    raise InvalidInputError(
        "bad_actor", f"an actor is 1 to 255 printable characters, not {ascii(actor)[:100]}"
    )


def of_process(interface: str) -> str:
    """Return the actor of this process: `<interface>:<user>@<host>`."""
    return f"{interface}:{_plain(_user())}@{_plain(socket.gethostname())}"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without a name
        return str(os.getuid())


def _plain(name: str) -> str:
    return _STRANGE.sub("_", name)[:_LONGEST_NAME]
