"""Secrets where nothing seals them: refused, since their values would be lost."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel, SecretBytes, SecretStr, TypeAdapter

from grns.client.client import Client
from grns.errors import InvalidInputError
from grns.model.json import Limits
from grns.model.secret import STARS, clear_json, clear_text
from grns.postgres.database import Database
from tests.support.harness import submit

TOKEN = SecretStr("t0ken-of-the-canary")


class Session(BaseModel):
    user: str
    token: SecretStr | None


class Sessions(BaseModel):
    open: set[SecretStr]


@dataclass
class Ticket:
    token: SecretBytes


@pytest.mark.parametrize(
    "value",
    [
        Session(user="ann", token=TOKEN), [Session(user="ann", token=TOKEN)], Ticket(SecretBytes(b"t")),
        Sessions(open={TOKEN}),
    ],
)  # fmt: skip
def test_a_secret_is_found_in_what_has_stars(value: Any) -> None:
    with pytest.raises(InvalidInputError) as refused:
        clear_json(value)
    assert refused.value.code == "undeclared_secret"


def test_it_is_found_by_its_annotation_and_stars_alone_are_none() -> None:
    with pytest.raises(InvalidInputError):
        clear_text(deque([TOKEN]), Limits(), TypeAdapter(deque[SecretStr]))
    assert clear_json(Session(user=STARS, token=None)) == {"user": STARS, "token": None}
    assert clear_json({"user": STARS}) == {"user": STARS}


def log_in() -> Session:
    return Session(user="ann", token=TOKEN)


async def test_signals_and_submissions_by_name_refuse_it(client: Client, shared: Database) -> None:
    task_id = (await submit(shared)).id
    for value, code in (
        (log_in(), "undeclared_secret"), ({"a": {"$secret": "1.old.a.b"}}, "sealed_value"),
    ):  # fmt: skip
        with pytest.raises(InvalidInputError) as wrong:
            await client.signal(task_id, "session", value)
        assert wrong.value.code == code
    with pytest.raises(InvalidInputError):
        await client.submit("call", log_in(), pool="worker")
