"""Which browsers' requests are answered. A page of any site can make the browser of its visitor send requests
to servers that only that browser reaches: by a name of the site that points to the server's address (DNS
rebinding), or across sites. A token keeps these out; without one, these rules do.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence

from albertine.errors import SettingsError
from albertine.tasks.http.errors import HttpError

DEFAULT_PORTS = (":80", ":443")


def host_name(host: str) -> str:
    """The name or address in a Host header, without its port."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].rstrip(".")


def known_host(host: str, server_host: str, allowed: Sequence[str]) -> bool:
    """Whether requests with a Host header are answered. These hosts are: addresses, which no foreign site
    can use as its name; names without a dot, which are no public domains: `localhost`, services of Compose
    and Kubernetes; the host that the server listens on; and names that are allowed. `*.NAME` allows every
    name below another, and `*` every name."""
    name = host_name(host)
    try:
        ipaddress.ip_address(name)
        return True
    except ValueError:
        pass
    if (name and "." not in name) or name.endswith(".localhost") or name == host_name(server_host):
        return True
    return any(
        one == "*" or name == one or (one.startswith("*.") and name.endswith(one[1:])) for one in allowed
    )


def same_site(origin: str, host: str) -> bool:
    """Whether a page with this Origin came from the server itself. The scheme is not compared: a proxy
    in front of the server may terminate TLS."""
    scheme, found, place = origin.lower().partition("://")
    return bool(found) and scheme in ("http", "https") and _without_port(place) == _without_port(host.lower())


def _without_port(place: str) -> str:
    for port in DEFAULT_PORTS:
        place = place.removesuffix(port)
    return place


def check_browser(
    method: str, headers: Mapping[str, str], server_host: str, hosts: Sequence[str], origins: Sequence[str]
) -> None:
    """Refuse what a foreign page may have sent.

    Args:
        server_host: the host that the server listens on. hosts, origins: as in `ServingLimits`.

    Raises:
        HttpError: 403, another Host or Origin.
    """
    check_host(headers, server_host, hosts)
    check_origin(method, headers, origins)


def check_host(headers: Mapping[str, str], server_host: str, hosts: Sequence[str]) -> None:
    """Refuse requests by a name that is not the server's.

    Raises:
        HttpError: 403, another Host.
    """
    host = headers.get("host", "")
    if host and not known_host(host, server_host, hosts):
        raise HttpError(
            403,
            "unknown_host",
            f"requests to the host `{host_name(host)[:253]}` are refused; start the server with "
            f"--allowed-hosts {host_name(host)[:253]}, or with a token",
        )


def check_origin(method: str, headers: Mapping[str, str], origins: Sequence[str]) -> None:
    """Refuse requests that a browser marks as those of a page of another origin. Other clients send neither
    header, or like Node's fetch `Sec-Fetch-Mode` alone.

    Raises:
        HttpError: 403, `Origin` names another origin, or `Sec-Fetch-Site` is another site.
    """
    origin = headers.get("origin")
    site = headers.get("sec-fetch-site", "").lower()
    if origin is not None:
        if "*" in origins or origin.lower() in origins or same_site(origin, headers.get("host", "")):
            return
    elif "*" in origins or not (site == "cross-site" or (site == "same-site" and method == "POST")):
        return
    named = f"`{origin[:253]}`" if origin is not None else "another site"
    raise HttpError(
        403,
        "cross_site",
        f"requests from pages of {named} are refused; start the server with --allowed-origins",
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
