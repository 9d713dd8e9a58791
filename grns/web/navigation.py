"""Where one can go from every page. A page that is new is one line here."""

from __future__ import annotations

from dataclasses import dataclass

from grns.access.principals import Scope


@dataclass(frozen=True, slots=True)
class NavigationItem:
    """One link; only whoever has the scope sees it, and of one that `is_of_all` in all workspaces."""

    title: str
    path: str
    scope: Scope = "read"
    is_of_all: bool = False

    def is_current(self, path: str) -> bool:
        """Say whether a page is this one, or below it."""
        return path == self.path or (self.path != "/" and path.startswith(f"{self.path}/"))


NAVIGATION = (
    NavigationItem("Overview", "/"),
    NavigationItem("Issues", "/issues"),
    NavigationItem("Tasks", "/tasks"),
    NavigationItem("Operations", "/operations"),
    NavigationItem("Pools", "/pools"),
    NavigationItem("Workers", "/workers"),
    NavigationItem("Events", "/events"),
    NavigationItem("Messages", "/messages"),
    NavigationItem("Webhooks", "/webhooks"),
    NavigationItem("Keys", "/keys", "admin"),
    NavigationItem("Workspaces", "/workspaces"),
    NavigationItem("Installation", "/installation", is_of_all=True),
)
