"""Pages, as the files of nouns declare them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from starlette.responses import Response

if TYPE_CHECKING:
    from grns.web.page_request import PageRequest

Handler = Callable[["PageRequest"], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class WebPage:
    """One page, or something that a form does. Nobody has to have been let in for one that is open."""

    method: str
    path: str
    handler: Handler
    is_open: bool

    @property
    def name(self) -> str:
        """What metrics call it."""
        return f"web_{self.handler.__name__}"


@dataclass
class WebPages:
    """The pages of one noun, collected by its decorators."""

    found: list[WebPage] = field(default_factory=list)

    def get(self, path: str, *, is_open: bool = False) -> Callable[[Handler], Handler]:
        """Declare a page that shows something."""
        return self._declare("GET", path, is_open=is_open)

    def post(self, path: str, *, is_open: bool = False) -> Callable[[Handler], Handler]:
        """Declare what a form does."""
        return self._declare("POST", path, is_open=is_open)

    def _declare(self, method: str, path: str, *, is_open: bool) -> Callable[[Handler], Handler]:
        def keep(handler: Handler) -> Handler:
            self.found.append(WebPage(method, path, handler, is_open))
            return handler

        return keep
