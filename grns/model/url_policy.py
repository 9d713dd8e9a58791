"""URLs that users may name, and addresses that grns may connect to (protection against SSRF).

Without it, a user who names a URL could make grns request what only grns can reach: this machine, its
network, the address at which clouds hand out credentials. The owner of a name decides where it leads, so the
address is checked, once, just before the connection.
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


# From the registries of special addresses; the lists in Python differ between releases.
_REFUSED_V4 = _networks(
    "0.0.0.0/8",  # this network: on Linux 0.0.0.0 is this machine
    "10.0.0.0/8",
    "100.64.0.0/10",  # carriers; the metadata of one cloud
    "127.0.0.0/8",
    "161.26.0.0/16",  # looks public: private endpoints of IBM Cloud
    "166.8.0.0/14",
    "168.63.129.16/32",  # looks public: the host of machines in Azure
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
# Of IPv6 only public addresses are allowed, without these:
_PUBLIC_V6 = ipaddress.ip_network("2000::/3")
_REFUSED_V6 = _networks(
    "2001::/23",  # Teredo and similar: contains an IPv4 address
    "2001:db8::/32",
    "2002::/16",  # 6to4: the same
    "3fff::/20",
)
# Gateways translate these to the IPv4 address at their end.
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


@dataclass(frozen=True, slots=True)
class Destination:
    """The parts of a URL: where to connect, and what to request there."""

    scheme: str
    host: str  # without brackets
    port: int
    target: str  # path and query

    @property
    def is_tls(self) -> bool:
        """Whether it is https."""
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
        """The whole URL."""
        return f"{self.scheme}://{self.authority}{self.target}"


@dataclass(frozen=True, slots=True)
class UrlPolicy:
    """Allows https to public addresses, and what the settings add."""

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
            is_own: whether this machine has it. It may look public, so `networks` must name it.
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
    """Return a policy that allows networks such as `10.0.0.0/8, fd00::/8`. Raises ValueError."""
    names = (name.strip() for name in networks.split(","))
    return UrlPolicy(tuple(ipaddress.ip_network(name) for name in names if name), allows_http)


def place(url: str) -> str:
    """Return a stored URL without its path and query, which may hold a secret."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}/…"


def _host(text: str) -> str:
    """Return a valid host. Raises InvalidInputError: `bad_url`."""
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
    """Return the IPv4 address that an IPv6 address leads to, or the address itself."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address in _NAT64:
            return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def _is_in(address: Address, networks: Iterable[Network]) -> bool:
    return any(address.version == network.version and address in network for network in networks)
