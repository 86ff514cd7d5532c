"""Servers with a port, and a page of a real browser that notes what must not happen."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import uvicorn

from albertine.serving.app import application
from albertine.serving.limits import ServingLimits
from tests.serving.served import service_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = ("/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome")
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
]


LOUD = ("error", "warning", "assert")
"""Kinds of messages on the console that a page does not write."""


@contextmanager
def browser() -> Iterator[Browser]:
    """A headless Chromium of the system. The test is skipped where there is none."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = next((path for path in CHROMIUM if Path(path).exists()), None)
    if path is None:
        pytest.skip("Chromium is not installed (apt-get install chromium)")
    with api.sync_playwright() as started:
        found = started.chromium.launch(executable_path=path, args=FLAGS)
        yield found
        found.close()


@contextmanager
def served(
    folder: Path,
    *others: Path,
    token: bytes | None = None,
    port: int = 0,
    wrap: Any = lambda app: app,
    **more: Any,
) -> Iterator[str]:
    """The address of a server of folders in a thread of this process.

    Args:
        port: 0 for a free one. wrap: what stands before the application, such as a proxy.
    """
    service = service_of(folder, ServingLimits(), **more)
    for other in others:
        service.models.add(other.name, str(other))
    service.models.start()
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind(("127.0.0.1", port))
    config = uvicorn.Config(
        wrap(application(service.models, token)), lifespan="off", log_config=None, timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.005)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
    finally:
        server.should_exit = True
        thread.join(10)
        listening.close()
        assert service.models.stop(10.0)


@contextmanager
def tab(browser: Browser, *, errors: bool = False, **options: Any) -> Iterator[Page]:
    """A page of a new profile. At its end it must have reported nothing on the console, broken no rule of its
    policy, and requested nothing from elsewhere.

    Args:
        errors: whether errors of requests are expected, which browsers report. options: of the profile, as
            Playwright has them.
    """
    options = {"locale": "en-US", "viewport": {"width": 1000, "height": 900}, **options}
    with browser.new_context(**options) as context:
        page, reported, hosts = context.new_page(), [], set()
        page.set_default_timeout(15_000)
        page.on(
            "console", lambda message: message.type in LOUD and reported.append((message.type, message.text))
        )
        page.on("pageerror", lambda error: reported.append(("error", str(error))))
        page.on("request", lambda request: hosts.add(request.url.split("/")[2]))
        page.add_init_script("""
            document.addEventListener("securitypolicyviolation",
                (event) => console.error("policy", event.violatedDirective, event.blockedURI))""")
        yield page
        loud = [one for one in reported if not (errors and "Failed to load resource" in one[1])]
        assert not loud, loud
        assert all(host.startswith(("127.0.0.1:", "localhost:")) for host in hosts), hosts
