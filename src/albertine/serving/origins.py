"""Which browsers' requests are answered. A page of any site can make the browser of somebody who visits it
send requests to servers that only that browser reaches: by its own name, which it lets point to the server's
address (DNS rebinding), or across sites. A token keeps these out; without one, these rules do.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence

from albertine.errors import SettingsError
from albertine.serving.limits import is_loopback
from albertine.serving.refusal import Refusal

FORMS = ("text/plain", "multipart/form-data")
"""Bodies that a page can send across sites without a preflight request, and no client of JSON sends."""
DEFAULT_PORTS = (":80", ":443")


def host_name(host: str) -> str:
    """The name or address in a Host header, without its port."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].rstrip(".")


def known_host(host: str, bound: str, allowed: Sequence[str]) -> bool:
    """Whether a server may be called by a Host header: an address, which no foreign site can make its own
    name, the name of this machine alone, what the server was bound to, or a name that is allowed; `*.NAME`
    allows every name below another, and `*` every name."""
    name = host_name(host)
    try:
        ipaddress.ip_address(name)
        return True
    except ValueError:
        pass
    if is_loopback(name) or name.endswith(".localhost") or name == bound.lower():
        return True
    return any(
        one == "*" or name == one or (one.startswith("*.") and name.endswith(one[1:])) for one in allowed
    )


def same_site(origin: str, host: str) -> bool:
    """Whether a page with this Origin came from the server itself. The scheme is left aside: a proxy before
    the server may be the one who speaks TLS."""
    scheme, found, place = origin.lower().partition("://")
    return bool(found) and scheme in ("http", "https") and _without_port(place) == _without_port(host.lower())


def _without_port(place: str) -> str:
    for port in DEFAULT_PORTS:
        place = place.removesuffix(port)
    return place


def check_browser(
    method: str, headers: Mapping[str, str], bound: str, hosts: Sequence[str], origins: Sequence[str]
) -> None:
    """Refuse what a foreign page may have sent.

    Args:
        bound: what the server listens on. hosts, origins: as in `ServingLimits`.

    Raises:
        Refusal: 403, another Host or Origin; 415, a body of a form.
    """
    host = headers.get("host", "")
    if host and not known_host(host, bound, hosts):
        raise Refusal(
            403,
            "unknown_host",
            f"the server is not known as `{host_name(host)[:253]}`; start it with --allowed-hosts "
            f"{host_name(host)[:253]}, or with a token",
        )
    check_origin(headers, origins)
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if method == "POST" and kind in FORMS:
        raise Refusal(415, "not_json", f"the body is {kind}; send JSON as `content-type: application/json`")


def check_origin(headers: Mapping[str, str], origins: Sequence[str]) -> None:
    """
    Raises:
        Refusal: 403, a page of another site asks.
    """
    origin = headers.get("origin")
    if origin is not None:
        if "*" in origins or origin.lower() in origins or same_site(origin, headers.get("host", "")):
            return
    elif headers.get("sec-fetch-site", "").lower() != "cross-site" or "*" in origins:
        return
    named = f"`{origin[:253]}`" if origin is not None else "another site"
    raise Refusal(
        403, "cross_site", f"a page of {named} may not ask this server; start it with --allowed-origins"
    )


def read_hosts(given: Sequence[str]) -> tuple[str, ...]:
    """Names as `--allowed-hosts` takes them.

    Raises:
        SettingsError: one is no name.
    """
    for one in given:
        if not one or "/" in one or ":" in one or ("*" in one.removeprefix("*.") and one != "*"):
            raise SettingsError(
                f"--allowed-hosts {one} is no name of a host",
                remedy="Give a name such as example.com without scheme or port, *.example.com, or *",
            )
    return tuple(one.lower().rstrip(".") for one in given)


def read_origins(given: Sequence[str]) -> tuple[str, ...]:
    """Origins as `--allowed-origins` takes them.

    Raises:
        SettingsError: one is no origin.
    """
    for one in given:
        scheme, found, place = one.partition("://")
        if one != "*" and not (found and scheme in ("http", "https") and place and "/" not in place):
            raise SettingsError(
                f"--allowed-origins {one} is no origin",
                remedy="Give scheme and host, and the port if it has one: http://localhost:3000; or *",
            )
    return tuple(one.lower() for one in given)
