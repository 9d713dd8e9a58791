"""The API process, and somebody at its door: requests over one connection, with a key."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from typing import Any
from urllib.parse import urlencode

from grns.access.keys import create_key
from grns.access.principals import SCOPES
from grns.api.route import PREFIX
from grns.web.authentication import COOKIE
from tests.bench.interfaces.life import OURS
from tests.bench.interfaces.table import ACTOR
from tests.bench.stage import Stage
from tests.support.harness import START_SECONDS

_HOST = "127.0.0.1"
_GOOD = 400
_PATIENCE_SECONDS = 60.0


@dataclass(frozen=True)
class Entrance:
    """Where the API listens, and the keys that open it: one of a workspace, and one of all."""

    port: int
    key: str
    key_of_all: str


@dataclass(frozen=True, slots=True)
class Answered:
    """One answer, and how long it took from the first byte sent to the last one read."""

    status: int
    body: bytes
    headers: Mapping[str, str]
    milliseconds: float

    @property
    def content(self) -> Any:
        """The JSON in it."""
        return json.loads(self.body)


class Door:
    """A connection that is kept. Not for two threads at once."""

    def __init__(self, port: int, *, key: str | None = None, cookie: str | None = None) -> None:
        self._connection = HTTPConnection(_HOST, port, timeout=_PATIENCE_SECONDS)
        self._headers = {"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate"} if cookie else {}
        if key is not None:
            self._headers["Authorization"] = f"Bearer {key}"
        if cookie is not None:
            self._headers["Cookie"] = cookie

    def get(self, path: str) -> Answered:
        """Ask for something."""
        return self._exchange("GET", path)

    def look(self, path: str, body: Mapping[str, object] | None = None) -> Answered:
        """Ask for something, perhaps with a body."""
        if body is None:
            return self.get(path)
        return self._exchange("POST", path, json.dumps(body).encode(), {"Content-Type": "application/json"})

    def ask(self, path: str) -> Any:
        """Return what the API answers; fails where that is a problem."""
        answered = self.get(PREFIX + path)
        assert answered.status < _GOOD, (path, answered.status, answered.body[:500])
        return answered.content

    def act(self, path: str, body: Mapping[str, Any] | None = None, *, method: str = "POST") -> Any:
        """Have something done; fails where it cannot be."""
        sent = None if body is None else json.dumps(body).encode()
        answered = self._exchange(method, PREFIX + path, sent, {"Content-Type": "application/json"})
        assert answered.status < _GOOD, (path, answered.status, answered.body[:500])
        return answered.content

    def send(self, path: str, fields: Mapping[str, str]) -> Answered:
        """Send a form."""
        kind = {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin"}
        return self._exchange("POST", path, urlencode(fields).encode(), kind)

    def close(self) -> None:
        """Hang up."""
        self._connection.close()

    def _exchange(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answered:
        began = time.perf_counter()
        self._connection.request(method, path, body, {**self._headers, **(headers or {})})
        answer = self._connection.getresponse()
        read = answer.read()
        took = (time.perf_counter() - began) * 1000
        return Answered(answer.status, read, {k.lower(): v for k, v in answer.getheaders()}, took)


async def entrance(stage: Stage) -> Entrance:
    """Make the keys, and choose the port. As soon as there is a key, nobody comes in without one."""
    keys = []
    for workspace in (OURS, None):
        made, _ = await create_key(
            stage.database, workspace=workspace, name="bench", scopes=list(SCOPES), actor=ACTOR
        )
        keys.append(made.reveal())
    with socket.create_server((_HOST, 0)) as free:
        port = int(free.getsockname()[1])
    return Entrance(port, *keys)


def start_api(stage: Stage, where: Entrance) -> None:
    """Start an API process, and wait until it answers."""
    stage.start("api", "--port", str(where.port))
    wait_until_open(where)


def wait_until_open(where: Entrance) -> None:
    """Wait until the API answers that it is ready."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        door = Door(where.port)
        try:
            if door.get("/readyz").status < _GOOD:
                return
        except (OSError, HTTPException):
            pass
        finally:
            door.close()
        assert time.monotonic() < deadline, "the API does not answer"
        time.sleep(0.05)


def log_in(where: Entrance, key: str) -> Door:
    """Return somebody with a browser who has come in with a key."""
    door = Door(where.port)
    answered = door.send("/login", {"key": key, "next": "/"})
    door.close()
    cookie = answered.headers.get("set-cookie", "").partition(";")[0]
    assert cookie.startswith(COOKIE), (answered.status, answered.body[:500])
    return Door(where.port, cookie=cookie)
