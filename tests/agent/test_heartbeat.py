"""Renewals of an agent's leases: each in time, also while another one gets no answer."""

from __future__ import annotations

import threading
import time
from typing import Any

from grns.agent.heartbeat import LeaseRenewer
from grns.errors import UnavailableError

LEASE_SECONDS = 3.0


class Task:
    """A task whose lease is renewed."""

    def __init__(self, token: str) -> None:
        self.token = token
        self.lease_seconds = LEASE_SECONDS
        self.expires_at = time.monotonic() + LEASE_SECONDS
        self.ended: list[str] = []
        self.heard: list[str] = []
        self.is_overdue = False

    def end(self, reason: str) -> None:
        self.ended.append(reason)

    def hear(self, order: str) -> None:
        self.heard.append(order)


def test_renewal_without_an_answer_does_not_delay_the_others() -> None:
    asked: dict[str, int] = {}
    ended = threading.Event()

    def renew(token: str, seconds: float) -> Any:
        asked[token] = asked.get(token, 0) + 1
        if token.startswith("silent"):
            time.sleep(seconds)
            raise UnavailableError("no answer")
        return {"cancel_requested": False, "order": "drain"}

    renewer = LeaseRenewer(renew, on_end=ended.set)
    tasks = [Task(token) for token in ("silent-1", "silent-2", "silent-3", "answered")]
    for task in tasks:
        renewer.keep(task)
    time.sleep(1.3 * LEASE_SECONDS)
    renewer.stop(5.0)
    assert ended.wait(5.0)
    assert [task.ended for task in tasks] == [["deadline"]] * 3 + [[]]
    assert tasks[3].expires_at > time.monotonic()
    assert set(tasks[3].heard) == {"drain"}
    assert asked["answered"] >= 3


def test_one_request_without_an_answer_costs_no_lease() -> None:
    """A request waits for a sixth of the lease at most, so there is time to ask again."""
    asked: list[float] = []

    def renew(token: str, seconds: float) -> Any:
        asked.append(time.monotonic())
        if len(asked) == 1:
            time.sleep(seconds)
            raise UnavailableError("no answer")
        return {"cancel_requested": False}

    renewer = LeaseRenewer(renew, on_end=lambda: None)
    task = Task("unlucky")
    renewer.keep(task)
    time.sleep(LEASE_SECONDS)
    renewer.stop(5.0)
    assert not task.ended
    assert len(asked) >= 2


def test_lease_is_renewed_at_once_if_the_answer_to_its_claim_took_long() -> None:
    asked = threading.Event()

    def renew(token: str, seconds: float) -> Any:
        asked.set()
        return {"cancel_requested": False}

    renewer = LeaseRenewer(renew, on_end=lambda: None)
    task = Task("late")
    task.expires_at -= LEASE_SECONDS / 2
    renewer.keep(task)
    assert asked.wait(LEASE_SECONDS / 6)
    time.sleep(LEASE_SECONDS / 2)
    renewer.stop(5.0)
    assert not task.ended
    assert task.expires_at > time.monotonic() + LEASE_SECONDS / 6


def test_renewer_that_kept_nothing_ends_at_once() -> None:
    ended = threading.Event()
    LeaseRenewer(lambda token, seconds: None, on_end=ended.set).stop(1.0)
    assert ended.is_set()
