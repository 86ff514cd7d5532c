"""Which browsers' requests a server without a token answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from albertine.errors import SettingsError
from albertine.serving.limits import ServingLimits
from albertine.serving.origins import known_host, read_hosts, read_origins, same_site
from tests.serving.served import client_of

Folders = Callable[[str], Path]
BODY = {"inputs": "who"}


def answer_to(folder: Path, headers: dict[str, str], path: str = "/embed", **more: Any) -> tuple[int, Any]:
    """Status and code of an answer to a request with such headers."""
    with client_of(folder, **more) as client:
        found = (
            client.get(path, headers=headers)
            if path != "/embed"
            else client.post(path, json=BODY, headers=headers)
        )
        return found.status_code, found.json().get("code") if found.status_code >= 400 else None


@pytest.mark.parametrize(
    ("host", "known"),
    [
        *(
            (host, True)
            for host in ("localhost", "localhost:8080", "LOCALHOST.", "a.localhost:1", "127.0.0.1:8080")
        ),
        *(
            (host, True)
            for host in (
                "[::1]:8080",
                "[::1",
                "10.1.2.3:8080",
                "[fe80::1]",
                "myhost.example:80",
                "albert.example",
            )
        ),
        *((host, True) for host in ("a.lan", "x.y.lan:8080")),
        *(
            (host, False)
            for host in ("evil.example", "127.0.0.1.evil.example:8080", "localhost.evil.example")
        ),
        *((host, True) for host in ("albertine:8080", "lan", "evillan", "MYHOST.example.:80")),
        *((host, False) for host in ("myhost.evil.example", "evil.example.", "")),
    ],
)
def test_by_which_names_a_server_is_called(host: str, known: bool) -> None:
    assert known_host(host, "myhost.example", ("albert.example", "*.lan")) is known
    assert known_host(host, "myhost.example", ("*",))


@pytest.mark.parametrize(
    ("origin", "host", "same"),
    [
        ("http://localhost:8080", "localhost:8080", True),
        ("https://albert.example", "albert.example", True),
        ("https://albert.example:443", "albert.example", True),
        ("http://localhost:3000", "localhost:8080", False),
        ("http://evil.example", "localhost:8080", False),
        ("null", "localhost:8080", False),
        ("file://localhost:8080", "localhost:8080", False),
        ("http://localhost:8080.evil.example", "localhost:8080", False),
    ],
)
def test_whose_page_is_our_own(origin: str, host: str, same: bool) -> None:
    assert same_site(origin, host) is same


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({}, 200, None),
        ({"host": "evil.example:8080"}, 403, "unknown_host"),
        ({"origin": "http://evil.example"}, 403, "cross_site"),
        ({"origin": "null"}, 403, "cross_site"),
        ({"origin": "http://localhost:3000"}, 403, "cross_site"),
        ({"origin": "http://localhost"}, 200, None),
        ({"sec-fetch-site": "cross-site"}, 403, "cross_site"),
        ({"sec-fetch-site": "same-origin"}, 200, None),
        ({"sec-fetch-site": "same-site"}, 403, "cross_site"),
        ({"sec-fetch-site": "none"}, 200, None),
        ({"host": "albertine:8080"}, 200, None),
        # what Node's fetch sends of a string
        ({"content-type": "text/plain;charset=UTF-8", "sec-fetch-mode": "cors"}, 200, None),
        ({"content-type": "text/plain;charset=UTF-8", "origin": "http://localhost"}, 200, None),
        ({"content-type": "text/plain", "origin": "http://evil.example"}, 403, "cross_site"),
        ({"content-type": "text/plain", "sec-fetch-site": "cross-site"}, 403, "cross_site"),
        ({"content-type": "application/x-www-form-urlencoded"}, 200, None),  # what curl -d and urllib send
    ],
)
def test_pages_of_other_sites_get_no_answer(
    folder: Folders, headers: dict[str, str], status: int, code: str | None
) -> None:
    assert answer_to(folder("embed"), headers) == (status, code)
    # Who has the token is no foreign page.
    own = {**headers, "authorization": "Bearer secret"}
    assert answer_to(folder("embed"), own, token=b"secret") == (200, None)


def test_only_health_is_answered_by_any_name(folder: Folders) -> None:
    with client_of(folder("embed")) as client:
        for path in ("/health", "/health/ready", "/health/live"):
            assert client.get(path, headers={"host": "probe.example"}).status_code == 200
        for path in ("/info", "/metrics", "/v1/models", "/nowhere"):
            assert client.get(path, headers={"host": "probe.example"}).status_code == 403


def test_allowed_names_and_sites(folder: Folders) -> None:
    limits = ServingLimits(hosts=("albert.example",), origins=("http://app.example",))
    app = {"origin": "http://app.example"}
    with client_of(folder("embed"), limits) as client:
        found = client.post("/embed", json=BODY, headers={**app, "host": "albert.example:8080"})
        assert found.status_code == 200
        assert found.headers["access-control-allow-origin"] == "http://app.example"
        assert "x-model-sha" in found.headers["access-control-expose-headers"]
        other = client.post("/embed", json=BODY, headers={"origin": "http://evil.example"})
        assert other.status_code == 403 and "access-control-allow-origin" not in other.headers
        wish = {
            "access-control-request-method": "POST",
            "access-control-request-headers": "content-type,authorization",
        }
        before = client.options("/embed", headers={**app, **wish})
        assert before.status_code == 200
        assert before.headers["access-control-allow-origin"] == "http://app.example"
        assert client.options("/embed", headers={"origin": "http://evil.example", **wish}).status_code >= 400
    with client_of(folder("embed"), limits, b"secret") as client:  # a preflight brings no token
        assert client.options("/embed", headers={**app, **wish}).status_code == 200
        refused = client.post("/embed", json=BODY, headers=app)
        assert refused.status_code == 401
        assert refused.headers["access-control-allow-origin"] == "http://app.example"
    with client_of(folder("embed")) as client:
        assert client.options("/embed", headers={**app, **wish}).status_code == 403


@pytest.mark.parametrize("wrong", ["http://a.example", "a.example:80", "a*.example", "a/b"])
def test_what_is_no_host(wrong: str) -> None:
    with pytest.raises(SettingsError, match="--allowed-hosts"):
        read_hosts([wrong])


@pytest.mark.parametrize("wrong", ["a.example", "ftp://a.example", "http://", "http://a.example/page"])
def test_what_is_no_origin(wrong: str) -> None:
    with pytest.raises(SettingsError, match="--allowed-origins"):
        read_origins([wrong])
