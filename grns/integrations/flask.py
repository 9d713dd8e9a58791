"""Flask: a client for the application.

```python
from flask import Flask
from grns.integrations.flask import Grns

grns = Grns()


def create_app() -> Flask:
    app = Flask(__name__)
    app.config["GRNS_DATABASE_URL"] = "postgresql://..."  # or the environment
    grns.init_app(app)
    return app


@pages.post("/pages")
def add_page() -> dict[str, str]:
    return {"task": grns.client.submit(fetch_page, Page(url=request.form["url"])).id}
```
"""

from __future__ import annotations

from typing import Any

from flask import Flask, current_app

from grns.sync import Client

__all__ = ["Grns"]

_PREFIX = "GRNS_"


class Grns:
    """The extension: `client` is the synchronous client of the current application.

    Args:
        app: the application; without it, call `init_app`.
        options: those of `grns.sync.Client`. Settings of `app.config` that begin with `GRNS_` come first.
    """

    def __init__(self, app: Flask | None = None, **options: Any) -> None:
        self._options = options
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        """Give an application its client. It connects when it is first used."""
        configured = {
            name.removeprefix(_PREFIX).lower(): value
            for name, value in app.config.items()
            if name.startswith(_PREFIX)
        }
        app.extensions["grns"] = Client(**self._options | configured)

    @property
    def client(self) -> Client:
        """The client of the current application."""
        client: Client = current_app.extensions["grns"]
        return client
