"""The API on a real port."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from grns.web.app import make_site
from tests.support.api import Door, serving


@pytest.fixture
async def url(door: Door) -> AsyncIterator[str]:
    """Where the API and the dashboard are."""
    async with serving(door.context, make_site(door.context)) as server:
        yield server.url
