"""Where somebody else's server may be: URLs that may be named, and addresses that may be connected to.

Whoever may name a URL could otherwise have us ask what only we can reach: this machine, the network it
stands in, the address at which clouds hand out credentials. A name proves nothing, for its owner decides
what it leads to: what counts is the address, and it is looked at once, just before it is connected to.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from grns.errors import InvalidInputError

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

LONGEST = 2000
_URL = re.compile(
    r"(?P<scheme>https?)://(?P<host>\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<path>/[a-z0-9._~!$&'()*+,;=:@%/-]*)?(?P<query>\?[a-z0-9._~!$&'()*+,;=:@%/?-]*)?",
    re.ASCII | re.IGNORECASE,
)
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII)
_PORTS = {"http": 80, "https": 443}
_LOCAL = "127.0.0.1"


def _networks(*texts: str) -> tuple[Network, ...]:
    return tuple(map(ipaddress.ip_network, texts))


# From the registries of special addresses. Those of Python itself differ from one release to the next.
_REFUSED_V4 = _networks(
    "0.0.0.0/8",  # this network: Linux takes 0.0.0.0 for this machine
    "10.0.0.0/8",
    "100.64.0.0/10",  # carriers' own; one cloud has its metadata there
    "127.0.0.0/8",
    "161.26.0.0/16",  # look public: private endpoints of IBM Cloud's services
    "166.8.0.0/14",
    "168.63.129.16/32",  # looks public: to machines in Azure it is their host
    "169.254.0.0/16",  # link-local: metadata of most clouds
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.0.2.0/24",
    "192.88.99.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "224.0.0.0/4",
    "240.0.0.0/4",
)
# Of version 6 only what is handed out to the public is not refused, and of that not these:
_PUBLIC_V6 = ipaddress.ip_network("2000::/3")
_REFUSED_V6 = _networks(
    "2001::/23",  # Teredo and its like: an address of version 4 is hidden in it
    "2001:db8::/32",
    "2002::/16",  # 6to4: the same
    "3fff::/20",
)
# Gateways turn these into the address of version 4 that they end with.
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


@dataclass(frozen=True, slots=True)
class Destination:
    """A URL, taken apart once: what is connected to, and what is asked for there."""

    scheme: str
    host: str  # without brackets
    port: int
    target: str  # path and query

    @property
    def is_tls(self) -> bool:
        """Say whether it is https."""
        return self.scheme == "https"

    @property
    def has_default_port(self) -> bool:
        """Return whether the port is that of the scheme."""
        return self.port == _PORTS[self.scheme]

    @property
    def host_and_port(self) -> str:
        """Return `host:port`; the path, which may hold a secret, is left out."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def authority(self) -> str:
        """Return host and port as the Host header has them, without a default port."""
        return self.host_and_port.rpartition(":")[0] if self.has_default_port else self.host_and_port

    @property
    def url(self) -> str:
        """The whole of it, as it was read."""
        return f"{self.scheme}://{self.authority}{self.target}"


@dataclass(frozen=True, slots=True)
class UrlPolicy:
    """What may be sent to: https to public addresses, and what somebody has allowed besides."""

    networks: Sequence[Network] = ()
    allows_http: bool = False

    def destination(self, url: str) -> Destination:
        """Return a URL taken apart.

        Raises `InvalidInputError`: `bad_url` where it is none that may be named, `forbidden_address` where
        its host is an address that may not be connected to. Neither repeats it: it may hold a secret.
        """
        found = _URL.fullmatch(url) if len(url) <= LONGEST else None
        if found is None:
            raise InvalidInputError(
                "bad_url",
                f"a URL is https://host/path, {LONGEST} characters at most, without a user or a fragment",
            )
        scheme = found["scheme"].lower()
        if scheme == "http" and not self.allows_http:
            raise InvalidInputError(
                "bad_url", "a URL begins with https:// here, but for GRNS_WEBHOOK_ALLOW_HTTP=true"
            )
        port = int(found["port"] or _PORTS[scheme])
        if not 0 < port <= 65535:
            raise InvalidInputError("bad_url", "the port of a URL is 1 to 65535")
        host = _host(found["host"].lower())
        self._check_host(host)
        return Destination(scheme, host, port, (found["path"] or "/") + (found["query"] or ""))

    def allows(self, address: str, *, is_own: bool = False) -> bool:
        """Return whether an address may be connected to.

        Args:
            address: as text; anything else is not allowed.
            is_own: whether it is one of this machine's, which may look public: `networks` has to name it.
        """
        try:
            found = ipaddress.ip_address(address)
        except ValueError:
            return False
        inner = _inner(found)
        if any(_is_in(one, self.networks) for one in (found, inner)):
            return True
        if is_own:
            return False
        if isinstance(inner, ipaddress.IPv6Address):
            return inner in _PUBLIC_V6 and not _is_in(inner, _REFUSED_V6)
        return not _is_in(inner, _REFUSED_V4)

    def _check_host(self, host: str) -> None:
        is_local = host == "localhost" or host.endswith(".localhost")
        address = _LOCAL if is_local else host
        if _is_address(address) and not self.allows(address):
            raise InvalidInputError(
                "forbidden_address", "nothing may be sent to the address that the URL names"
            )


def guard(networks: str, *, allows_http: bool) -> UrlPolicy:
    """Return a guard that allows networks, as `10.0.0.0/8, fd00::/8`; `ValueError` where they are none."""
    named = (one.strip() for one in networks.split(","))
    return UrlPolicy(tuple(ipaddress.ip_network(one) for one in named if one), allows_http)


def place(url: str) -> str:
    """Return a URL that was taken in without its path and query, which may hold a secret."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}/…"


def _host(text: str) -> str:
    """Return a host; `InvalidInputError` where it can be none."""
    if text.startswith("["):
        if ":" in text and _is_address(text[1:-1]):
            return text[1:-1]
    elif len(text) <= 253 and all(_LABEL.fullmatch(label) for label in text.split(".")):
        return text
    raise InvalidInputError("bad_url", "the host of a URL is a name or an address")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _inner(address: Address) -> Address:
    """Return the address of version 4 that one of version 6 leads to, or the address itself."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address in _NAT64:
            return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def _is_in(address: Address, networks: Iterable[Network]) -> bool:
    return any(address.version == network.version and address in network for network in networks)
