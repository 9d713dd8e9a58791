"""An operator: redrives what has failed and cancels what is parked, in bulk, over the HTTP API.

`python -m tests.chaos.operator URL`, with a key in GRNS_CHAOS_KEY, until SIGTERM.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2

from tests.chaos.journal import Journal

PARKED = "parked"
_PAUSE_SECONDS = 3.0
_LAST_SECONDS = 15.0
_MANY = 10
_REDRIVE = {"action": "redrive", "filter": "type:doomed status:dead,failed age:<40s"}
_CANCEL = {"action": "cancel", "filter": f"type:{PARKED} status:waiting", "reason": "not needed"}


class Operator:
    """Asks for one thing after another; what is not answered is left to the next turn."""

    def __init__(self, client: httpx2.AsyncClient, journal: Journal) -> None:
        self._client = client
        self._journal = journal
        self._numbers = itertools.count(1)
        self.stopping = asyncio.Event()

    async def run(self) -> None:
        """Go on until it is stopped."""
        turns = itertools.cycle((self._park, self._redrive, self._cancel, self._release_paused))
        while not self.stopping.is_set():
            with suppress(httpx2.HTTPError):
                await next(turns)()
            with suppress(TimeoutError):
                await asyncio.wait_for(self.stopping.wait(), random.uniform(0, _PAUSE_SECONDS))
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_SECONDS):
                await self._cancel_all()

    async def _cancel_all(self) -> None:
        """Leave nothing parked: it would wait for a day."""
        while True:
            with suppress(httpx2.HTTPError):
                await self._cancel()
                await asyncio.sleep(1.0)
                answer = await self._client.get("/tasks", params={"filter": _CANCEL["filter"], "limit": 1})
                if answer.is_success and not answer.json()["items"]:
                    return

    async def _park(self) -> None:
        """Submit tasks that no worker takes: they wait until they are cancelled."""
        for number in itertools.islice(self._numbers, _MANY):
            key = f"parked-{os.getpid()}-{number}"
            self._journal.note("try", key=key, type=PARKED, number=number)
            body = {"task_type": PARKED, "payload": {"number": number}, "delay_seconds": 86_400}
            answer = await self._client.post("/tasks", json=body, headers={"Idempotency-Key": key})
            if answer.is_success:
                self._journal.note("ok", key=key, task=answer.json()["id"])

    async def _redrive(self) -> None:
        extra: dict[str, Any] = random.choice(({}, {"canary": True}, {"rate_per_minute": 1200}))
        await self._client.post("/operations", json={**_REDRIVE, **extra})

    async def _cancel(self) -> None:
        await self._client.post("/operations", json=_CANCEL)

    async def _release_paused(self) -> None:
        """End what a failed canary has paused, or let it continue."""
        answer = await self._client.get("/operations", params={"state": "paused"})
        for operation in answer.json().get("items", []) if answer.is_success else []:
            what = random.choice(("cancel", "resume"))
            await self._client.post(f"/operations/{operation['id']}/{what}", json={"reason": "looked at"})


async def main(url: str) -> None:
    """Ask until SIGTERM."""
    journal = Journal(Path(os.environ["GRNS_CHAOS_DIRECTORY"]) / f"submits-{os.getpid()}.jsonl")
    headers = {"Authorization": f"Bearer {os.environ['GRNS_CHAOS_KEY']}"}
    async with httpx2.AsyncClient(base_url=f"{url}/api/v1", headers=headers, timeout=5.0) as client:
        operator = Operator(client, journal)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, operator.stopping.set)
        await operator.run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
