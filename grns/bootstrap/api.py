"""Wiring of the HTTP API and the dashboard."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grns.errors import SettingsError
from grns.nats import JetStream
from grns.postgres.database import Database

if TYPE_CHECKING:
    from grns.api.context import ApiContext
    from grns.api.invitation import Invitation
    from grns.api.server import ApiServer


from grns.bootstrap.app import App
from grns.bootstrap.gateway import GatewayFactory
from grns.bootstrap.tools import doctor
from grns.gateway.claim_secrets import ClaimSecrets
from grns.gateway.outputs import HttpOutputs
from grns.gateway.steps import HttpSteps


def api(
    app: App,
    database: Database,
    transport: JetStream,
    *,
    port: int | None = None,
    invitation: Invitation | None = None,
) -> ApiServer:
    """Return the server of the HTTP API and the dashboard, bound to its port.

    Args:
        port: Port to use. Defaults to the setting.
        invitation: Token that creates the first key. Defaults to a new one, printed until there is a key.

    Raises:
        UnavailableError: The port is taken.
        SettingsError: A package that the server needs is not installed.
    """
    try:
        from grns.api.server import ApiServer
        from grns.web.app import make_site
    except ModuleNotFoundError as error:
        missing = SettingsError(f"the API needs {error.name}, which is not installed")
        missing.add_note("pip install 'grns[api]'")
        raise missing from error

    settings = app.settings
    api_context = context(app, database, transport, invitation=invitation)
    secret = None if settings.session_secret is None else settings.session_secret.get_secret_value()
    site = make_site(api_context, secret=secret)
    port = settings.api_port if port is None else port
    return ApiServer(api_context, site, host=settings.api_host, port=port)


def context(
    app: App, database: Database, transport: JetStream, *, invitation: Invitation | None = None
) -> ApiContext:
    """Return the context of all requests."""
    from grns.api.context import ApiContext
    from grns.api.doctor_cache import DoctorCache
    from grns.api.invitation import Invitation

    settings, agents = app.settings, GatewayFactory(app, database, transport)
    writes = agents.writes()
    return ApiContext(
        database=database,
        transport=transport,
        workspace=settings.workspace,
        payload_limits=settings.payload_limits,
        result_limits=settings.result_limits,
        envelope_limits=settings.envelope_limits,
        batch_limit=settings.claim_batch,
        agent_claims=agents.claims(),
        agent_writes=writes,
        agent_steps=HttpSteps(writes),
        agent_outputs=HttpOutputs(transport, emit=app.telemetry.emit),
        agent_secrets=ClaimSecrets(),
        http_wait_seconds=settings.http_wait_seconds,
        http_lease_seconds=settings.http_lease_seconds,
        webhook_guard=settings.webhook_guard,
        emit=app.telemetry.emit,
        metrics=app.exposition,
        invitation=invitation or Invitation(),
        rounds=DoctorCache(lambda: doctor(app, database, transport, is_open=True).read()),
        spans=app.spans,
    )
