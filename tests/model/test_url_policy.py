"""The guard: which URLs may be named, and which addresses connected to."""

from __future__ import annotations

import pytest

from grns.errors import InvalidInputError
from grns.model.url_policy import LONGEST, Destination, UrlPolicy, guard, place

PUBLIC = UrlPolicy()
OPEN = guard("0.0.0.0/0, ::/0", allows_http=True)


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("https://example.org", Destination("https", "example.org", 443, "/")),
        ("https://example.org/", Destination("https", "example.org", 443, "/")),
        ("HTTPS://Example.ORG:443/A?b=C", Destination("https", "example.org", 443, "/A?b=C")),
        ("https://example.org?x=1", Destination("https", "example.org", 443, "/?x=1")),
        ("https://example.org:8443/a/b", Destination("https", "example.org", 8443, "/a/b")),
        ("https://a-b.c_d.example/%2e%2e/@x", Destination("https", "a-b.c_d.example", 443, "/%2e%2e/@x")),
        ("https://xn--bcher-kva.example/", Destination("https", "xn--bcher-kva.example", 443, "/")),
        ("https://93.184.216.34/", Destination("https", "93.184.216.34", 443, "/")),
        ("https://[2606:2800:220:1::1]:99/", Destination("https", "2606:2800:220:1::1", 99, "/")),
    ],
)  # fmt: skip
def test_a_url_is_taken_apart(url: str, found: Destination) -> None:
    assert PUBLIC.destination(url) == found
    assert PUBLIC.destination(found.url) == found


@pytest.mark.parametrize(
    ("url", "authority"),
    [
        ("https://example.org:443/", "example.org"),
        ("https://example.org:80/", "example.org:80"),
        ("http://example.org/", "example.org"),
        ("https://[2606:2800:220:1::1]/", "[2606:2800:220:1::1]"),
        ("https://[2606:2800:220:1::1]:99/", "[2606:2800:220:1::1]:99"),
    ],
)
def test_a_request_names_the_host_as_it_should(url: str, authority: str) -> None:
    assert OPEN.destination(url).authority == authority


@pytest.mark.parametrize(
    "url",
    [
        "", "example.org", "//example.org/", "ftp://example.org/", "file:///etc/passwd", "https:///x", "https://",
        "https://user@example.org/", "https://user:secret@example.org/", "https://example.org@evil.example/#",
        "https://example.org#x", "https://example.org/#x", "https://example.org/a b", "https://example.org/\r\nX:",
        "https://example.org\r\n/", "https://example.org/\n", "https://example.org/ü", "https://bücher.example/",
        "https://evil.example\\@example.org/", "https://example.org/\\x", "https://example.org:0/",
        "https://example.org:65536/", "https://example.org:port/", "https://example.org:/", "https://-a.example/",
        "https://a-.example/", "https://.example.org/", "https://example..org/", "https://example.org./",
        f"https://{'a' * 64}.example/", f"https://{'a.' * 130}example/", "https://[::1/", "https://[zz]/",
        "https://[fe80::1%25eth0]/", "https://[1.2.3.4]/", "https://example.org/\x00",
        "https://example.org/" + LONGEST * "a",
    ],
)  # fmt: skip
def test_what_is_no_url_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        OPEN.destination(url)
    assert refused.value.code == "bad_url"
    assert "secret" not in str(refused.value)


def test_http_has_to_be_allowed() -> None:
    with pytest.raises(InvalidInputError, match="https://"):
        PUBLIC.destination("http://example.org/")
    assert guard("", allows_http=True).destination("http://example.org/").port == 80


# Each of them leads, or may lead, to what only we can reach.
FORBIDDEN = [
    "0.0.0.0",  # noqa: S104 - it is none to listen on
    "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.100.100.200", "127.0.0.1",
    "127.255.0.1", "161.26.0.7", "161.26.255.255", "166.8.0.1", "166.11.255.255",
    "169.254.169.254", "169.254.170.2", "168.63.129.16", "172.16.0.1", "172.31.255.255",
    "192.0.0.192", "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1", "198.19.255.255",
    "198.51.100.7", "203.0.113.9", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255", "::",
    "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:a9fe:a9fe", "64:ff9b::7f00:1",
    "64:ff9b::10.0.0.1", "64:ff9b:1::1", "100::1", "2001::1", "2001:10::1", "2001:db8::1", "2002:7f00:1::",
    "2002:a9fe:a9fe::1", "3fff::1", "5f00::1", "fc00::1", "fd00:ec2::254", "fd20:ce::254", "fe80::1",
    "fe80::1%eth0", "fec0::1", "ff02::1", "1fff::1", "4000::1",
]  # fmt: skip
ALLOWED = [
    "1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.1", "93.184.216.34", "100.63.255.255", "100.128.0.1",
    "126.1.1.1", "128.0.0.1", "161.25.255.255", "161.27.0.1", "166.7.255.255",
    "166.12.0.1", "169.253.1.1", "172.15.255.255", "172.32.0.1", "192.0.1.1", "192.167.1.1",
    "198.17.1.1", "198.20.0.1", "223.255.255.255", "2606:4700::1111", "2a00:1450:4001::1",
    "2001:4860:4860::8888", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8",
]  # fmt: skip
NONE_AT_ALL = ["", "localhost", "example.org", "1.2.3", "0x7f.1", "2130706433", "127.1", "1.2.3.4/8", "[::1]"]


@pytest.mark.parametrize("address", [*FORBIDDEN, *NONE_AT_ALL])
def test_addresses_that_may_not_be_connected_to(address: str) -> None:
    assert not PUBLIC.allows(address)


@pytest.mark.parametrize("address", ALLOWED)
def test_address_of_this_machine_has_to_be_named(address: str) -> None:
    """Our own public address leads to what listens here, behind whatever protects it from outside."""
    assert not PUBLIC.allows(address, is_own=True)
    assert guard("0.0.0.0/0,::/0", allows_http=False).allows(address, is_own=True)


@pytest.mark.parametrize("address", ALLOWED)
def test_addresses_that_may_be_connected_to(address: str) -> None:
    assert PUBLIC.allows(address)


@pytest.mark.parametrize("address", [one for one in FORBIDDEN if "%" not in one])
def test_a_url_names_no_forbidden_address(address: str) -> None:
    host = f"[{address}]" if ":" in address else address
    with pytest.raises(InvalidInputError) as refused:
        PUBLIC.destination(f"https://{host}/")
    assert refused.value.code in ("forbidden_address", "bad_url")  # bad: brackets around no plain version 6


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "a.localhost", "127.0.0.1"])
def test_this_machine_is_refused_under_each_of_its_names(host: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        PUBLIC.destination(f"https://{host}/")
    assert refused.value.code == "forbidden_address"
    assert guard("127.0.0.0/8", allows_http=False).destination(f"https://{host}/").host == host.lower()


def test_what_is_allowed_besides_is_allowed_and_nothing_else() -> None:
    ours = guard(" 10.1.0.0/16,fd00::/8 ,127.0.0.1/32, 169.254.169.254", allows_http=False)
    for address in (
        "10.1.2.3",
        "fd00::1",
        "127.0.0.1",
        "::ffff:10.1.2.3",
        "64:ff9b::10.1.2.3",
        "169.254.169.254",
    ):
        assert ours.allows(address)
    for address in ("10.2.0.1", "127.0.0.2", "fc00::1", "169.254.169.253", "::1"):
        assert not ours.allows(address)


@pytest.mark.parametrize(
    "networks", ["10.0.0.1/8", "10.0.0.0/33", "all", "10.0.0.0/8;127.0.0.1", "localhost"]
)
def test_networks_that_are_none_are_refused(networks: str) -> None:
    with pytest.raises(ValueError, match=r"does not appear to be|has host bits set"):
        guard(networks, allows_http=False)


def test_a_url_is_shown_without_what_may_be_secret() -> None:
    for url in ("https://hooks.example.org/services/T0/s3cret", "https://hooks.example.org/?token=s3cret"):
        found = PUBLIC.destination(url).url
        assert place(found) == "https://hooks.example.org/…"
    assert place(PUBLIC.destination("https://a.example:8443/x").url) == "https://a.example:8443/…"
