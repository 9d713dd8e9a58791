"""Options of the client of nats-py."""

from __future__ import annotations

import importlib.util
import random
from typing import Any
from urllib.parse import unquote, urlsplit

from nats.aio.client import Server

from grns.errors import SettingsError
from grns.settings import Settings

CONNECT_SECONDS = 5
PENDING_BYTES = 16 * 1024 * 1024


def options(settings: Settings, *, name: str) -> dict[str, Any]:
    """Return the options of `nats.aio.client.Client.connect`, but for its callbacks."""
    connect_options: dict[str, Any] = {
        "servers": settings.nats_servers(),
        "name": name,
        "connect_timeout": CONNECT_SECONDS,
        "max_reconnect_attempts": -1,
        "reconnect_time_wait": 0.25,
        "reconnect_to_server_handler": next_server,
        # A second line of defense: the watchdog notices much earlier.
        "ping_interval": 10,
        "max_outstanding_pings": 2,
        "pending_size": PENDING_BYTES,
        "flush_timeout": 2,
    }
    if settings.nats_credentials_file is not None:
        connect_options["user_credentials"] = _credentials(settings)
    else:
        connect_options |= _userinfo(settings.nats_servers())
    return connect_options


def next_server(servers: list[Server], _info: dict[str, Any]) -> tuple[Server, float]:
    """Choose the server of the next attempt and the pause before it, both at random to avoid a rush.

    Each server is tried once before any is tried again: a dead address takes seconds to time out.
    """
    fewest = min(server.reconnects for server in servers)
    untried = [server for server in servers if server.reconnects == fewest]
    return random.choice(untried), random.uniform(0.1, 1.0)


def _userinfo(urls: list[str]) -> dict[str, str]:
    """Return the user that all URLs name.

    nats-py would send it only to the listed servers, not to those that the cluster announces.
    """
    named = {(parts.username, parts.password) for parts in map(urlsplit, urls)}
    if len(named) != 1:
        return {}
    user, password = named.pop()
    if user is None:
        return {}
    if password is None:
        return {"token": unquote(user)}
    return {"user": unquote(user), "password": unquote(password)}


def _credentials(settings: Settings) -> str:
    """Return the path of the credentials file after a check: nats-py loops forever on a wrong one."""
    path = settings.nats_credentials_file
    if path is None:
        raise SettingsError("GRNS_NATS_CREDENTIALS_FILE is not set")
    if importlib.util.find_spec("nkeys") is None:
        raise SettingsError(
            "GRNS_NATS_CREDENTIALS_FILE needs the package nkeys: pip install 'nats-py[nkeys]'"
        )
    try:
        content = path.read_bytes()
    except OSError as error:
        raise SettingsError(f"GRNS_NATS_CREDENTIALS_FILE: cannot read {path}: {error.strerror}") from error
    if b"BEGIN NATS USER JWT" not in content or b"BEGIN USER NKEY SEED" not in content:
        raise SettingsError(f"GRNS_NATS_CREDENTIALS_FILE: {path} is not a credentials file of a NATS user")
    return str(path)
