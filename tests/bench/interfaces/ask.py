"""Asking: every question in turn, again and again, so that all of them meet the same machine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from urllib.parse import parse_qsl, urlencode, urlsplit

from tests.bench.figure import MILLISECONDS, Figures
from tests.bench.interfaces.door import Door, Entrance, log_in, start_api
from tests.bench.interfaces.furniture import furnish
from tests.bench.interfaces.question import Question, missing, questions
from tests.bench.interfaces.size import Sizes
from tests.bench.interfaces.table import Tell
from tests.bench.interfaces.web import missing as missing_pages
from tests.bench.interfaces.web import web_questions
from tests.bench.stage import Stage

API, WEB = "api", "web"
_GOOD = 300
_WARM = 2
_LONGEST_PAGE = 1000
# The counter of a partial answer: how often of all.
_PARTS = "partial"


async def measure(stage: Stage, where: Entrance, sizes: Sizes, figures: Figures, tell: Tell) -> None:
    """Start an API process, ask it everything, and note how long each answer took."""
    await asyncio.to_thread(start_api, stage, where)
    door, of_all = Door(where.port, key=where.key), Door(where.port, key=where.key_of_all)
    browsers = [log_in(where, key) for key in (where.key, where.key_of_all)]
    try:
        things = await furnish(stage, sizes, door)
        asked, pages = questions(things), web_questions(things)
        assert not missing(asked), f"nothing is asked of {missing(asked)}"
        assert not missing_pages(pages), f"nothing is asked of {missing_pages(pages)}"
        settled = []
        for number, one in enumerate(asked):
            tell("finding the deep pages", number, len(asked))
            found = await asyncio.to_thread(_settled, door, one, sizes.depth) if one.is_deep else one
            settled += [found] if found is not None else []
        await _ask_all(API, [door, of_all], settled, sizes, figures, tell)
        await _ask_all(WEB, browsers, pages, sizes, figures, tell)
    finally:
        for one_of_them in (door, of_all, *browsers):
            one_of_them.close()
        await stage.end("api")


def _settled(door: Door, one: Question, depth: int) -> Question | None:
    """Return a deep question with its cursor, None where the list has no second page."""
    split = urlsplit(one.paths[0])
    query = dict(parse_qsl(split.query))
    cursor, passed = None, 0
    while passed < depth:
        more: dict[str, str] = {} if cursor is None else {"cursor": cursor}
        longest = 100 if one.route == "list_operations" else _LONGEST_PAGE
        limit = longest if depth - passed >= longest and passed else 50
        answered = door.get(f"{split.path}?{urlencode({**query, 'limit': limit, **more})}")
        assert answered.status < _GOOD, (one, answered.body[:500])
        page = answered.content
        if page["next_cursor"] is None or page["next_cursor"] == cursor:
            break
        cursor, passed = page["next_cursor"], passed + max(len(page["items"]), 1)
        if page["is_partial"]:
            break
    if cursor is None:
        return None
    return replace(one, paths=[f"{split.path}?{urlencode({**query, 'cursor': cursor})}"])


async def _ask_all(
    kind: str, doors: Sequence[Door], asked: Sequence[Question], sizes: Sizes, figures: Figures, tell: Tell
) -> None:
    for turn in range(-_WARM, sizes.samples):
        tell("asking the API" if kind == API else "opening the pages", max(turn, 0), sizes.samples)
        await asyncio.to_thread(_ask, kind, doors, asked, turn, figures)


def _ask(kind: str, doors: Sequence[Door], asked: Sequence[Question], turn: int, figures: Figures) -> None:
    for one in asked:
        answered = doors[one.is_of_all].look(one.paths[turn % len(one.paths)], one.body)
        is_good = answered.status < _GOOD or (one.route == "web_login" and answered.status == 303)
        assert is_good, (one, answered.status, answered.body[:500])
        if turn < 0:
            continue
        figures.note(f"{kind}.{one.name}", answered.milliseconds, MILLISECONDS)
        if (
            kind == API
            and answered.body.startswith(b'{"items"')
            and json.loads(answered.body).get("is_partial")
        ):
            figures.note(f"{_PARTS}.{one.name}", 1.0, "")
            if not one.may_be_partial and figures.by_name[f"{_PARTS}.{one.name}"].samples == [1.0]:
                figures.remarks.append(f"partial: {one.name}")
