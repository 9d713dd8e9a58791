"""Where agents may be nudged: nowhere but on the hosts that were named, however a URL is written."""

from __future__ import annotations

import pytest

from grns.errors import InvalidInputError, SettingsError
from grns.model import wakeup_url
from grns.settings import load

ALLOWED = wakeup_url.hosts("agents.internal, 10.0.0.7:8000 ,[::1]:9000,Upper.Example")


@pytest.mark.parametrize(
    "url",
    [
        "http://agents.internal/task", "https://agents.internal/task", "http://agents.internal:80/",
        "https://AGENTS.internal:443", "http://10.0.0.7:8000/task?x=1", "http://[::1]:9000/", "http://upper.example",
    ],
)  # fmt: skip
def test_a_host_that_was_named_is_allowed(url: str) -> None:
    assert wakeup_url.check(url, ALLOWED).host in ("agents.internal", "10.0.0.7", "::1", "upper.example")


@pytest.mark.parametrize(
    "url",
    [
        "", "agents.internal", "//agents.internal/", "ftp://agents.internal/", "file:///etc/passwd", "http:///task",
        "http://agents.internal:8000/", "https://agents.internal:80/", "http://10.0.0.7/", "http://10.0.0.7:80/",
        "http://[::1]/", "http://[::1/", "http://localhost/", "http://127.0.0.1/", "http://169.254.169.254/latest/",
        "http://evil.example/", "http://agents.internal.evil.example/", "http://evil.example#agents.internal",
        "http://evil.example?agents.internal", "http://evil.example/agents.internal",
        "http://agents.internal@evil.example/", "http://evil.example@agents.internal/",
        "http://a:b@agents.internal/", "http://agents.internal\\@evil.example/", "http://evil.example\\.agents.internal/",
        "http://agents.internal:99999/", "http://agents.internal:x/", "http://agents%2einternal/",
        "http://agents.internal /", "http://agents.internal\r\nX: y/", "http://agents\u3002internal/",
        "http://agents.internal\x00/",
        "http://167772167:8000/", "http://0x0a000007:8000/", "http://agents.internal./",
        "http://agents.internal/" + "x" * 2000,
    ],
)  # fmt: skip
def test_any_other_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        wakeup_url.check(url, ALLOWED)
    assert refused.value.code == "bad_agent_url"
    assert "evil" not in str(refused.value)


def test_without_the_setting_nobody_is_nudged() -> None:
    allowed = wakeup_url.hosts(load().wakeup_hosts)
    assert not allowed
    with pytest.raises(InvalidInputError):
        wakeup_url.check("http://agents.internal/", allowed)


@pytest.mark.parametrize("text", ["http://agents.internal", "a b", "*", "a/b", "a:b", "[::1", "a:123456"])
def test_a_setting_that_names_no_host_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="wakeup_hosts"):
        load(wakeup_hosts=text)


def test_host_and_port_leave_out_the_path() -> None:
    destination = wakeup_url.POLICY.destination
    assert destination("https://Agents.internal/secret?token=1").host_and_port == "agents.internal:443"
    assert destination("http://[::1]:9000/x").host_and_port == "[::1]:9000"
