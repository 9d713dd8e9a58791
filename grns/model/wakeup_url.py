"""URLs at which agents are woken: only on hosts that the operator has named."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection

from grns.errors import InvalidInputError
from grns.model.url_policy import Destination, UrlPolicy

_HOST = re.compile(
    r"([A-Za-z0-9_]([A-Za-z0-9_.-]{0,250}[A-Za-z0-9_])?|\[[0-9A-Fa-f:.]{2,45}\])(:[0-9]{1,5})?"
)
# The operator decides by host: any address of it is allowed, and http.
POLICY = UrlPolicy(tuple(map(ipaddress.ip_network, ("0.0.0.0/0", "::/0"))), allows_http=True)


def hosts(text: str) -> frozenset[str]:
    """Return the hosts that a setting names, separated by commas; `ValueError` if one is invalid.

    A host without a port allows only the default port of the scheme.
    """
    named = frozenset(host.strip().lower() for host in text.split(",") if host.strip())
    for host in named:
        if not _HOST.fullmatch(host):
            raise ValueError(
                f"{ascii(host)[:100]} is not a host: write a name or an address such as 10.0.0.7:8000"
            )
    return named


def check(url: str, allowed: Collection[str]) -> Destination:
    """Return an allowed URL, parsed; `InvalidInputError` (`bad_agent_url`), which does not repeat it."""
    try:
        to = POLICY.destination(url)
    except InvalidInputError as error:
        raise InvalidInputError("bad_agent_url", f"agent_url: {error}") from error
    if to.host_and_port not in allowed and not (to.has_default_port and to.authority in allowed):
        raise InvalidInputError("bad_agent_url", "agent_url: its host is not named in GRNS_WAKEUP_HOSTS")
    return to
