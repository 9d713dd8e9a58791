"""The small model that comes from PyPI: its vectors, and the page about a memory for agents, with it."""

from __future__ import annotations

from pathlib import Path

import pytest

import grns
from tests.site.page import written
from tests.site.test_programs import program
from tests.support.harness import Fleet, eventually
from workers.minilm import SIZE, MiniLm, installed


def test_vectors_are_those_of_the_model() -> None:
    """The first two sentences and their likeness are the example of sentence-transformers' documentation."""
    first, second, other = MiniLm(installed()).embed(
        [
            "A man is eating food.",
            "A man is eating a piece of bread.",
            "A cheetah is running behind its prey.",
        ]
    )
    assert (len(first), round(likeness(first, first), 4)) == (SIZE, 1.0)
    assert round(likeness(first, second), 3) == 0.755
    assert likeness(first, other) < 0.2


def test_a_text_among_others_has_the_vector_that_it_has_alone() -> None:
    model = MiniLm(installed())
    (alone,) = model.embed(["Rye bread."])
    among, _ = model.embed(["Rye bread.", "a much longer text, so that the first one is padded " * 50])
    assert round(likeness(alone, among), 5) == 1.0


@pytest.mark.usefixtures("in_environment")
async def test_the_page(fleet: Fleet, tmp_path: Path) -> None:
    remember = written("memory.md", tmp_path)[0]
    fleet.start("server")
    fleet.start("worker", "start", "workers.embed:pool")
    assert await program(remember) == "3 notes are kept\nrefunds\n"
    fleet.start("worker", "start", "pages:pool", PYTHONPATH=str(tmp_path))
    async with grns.connect() as client:
        read = await client.submit("read_page", {"title": "Our bakery"}, pool="pages")
        await read.result(timeout=20)

        async def found() -> bool:
            asked = await client.submit("search_texts", {"text": "bakery", "kind": "page"}, pool="embed")
            return [one["id"] for one in await asked.result(timeout=20)] == [read.id]

        await eventually(found)


def likeness(first: list[float], second: list[float]) -> float:
    return sum(one * other for one, other in zip(first, second, strict=True))
