"""`albertine serve`: answer over HTTP."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Annotated, Any, NoReturn

import typer

from albertine.cli.options import (
    BatchTokensOption,
    DeviceOption,
    ExitOption,
    LayersOption,
    PrecisionOption,
    RuntimeOption,
)

TOKEN, ADMIN_TOKEN = "ALBERTINE_TOKEN", "ALBERTINE_ADMIN_TOKEN"


def serve(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME=]MODEL",
            help="Model or run folder, exported folder, released model, or OWNER/NAME of the hub. Its "
            "name for clients is by default the last part. The first answers requests without a name.",
            show_default=False,
        ),
    ] = None,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port to listen on; 0 takes a free one.")
    ] = 8080,
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help="File with the token that clients must send, or several, one a line, whose clients get "
            f"equal shares of time; default: the variable {TOKEN}, or none.",
        ),
    ] = None,
    admin_token_file: Annotated[
        Path | None,
        typer.Option(
            "--admin-token-file",
            metavar="FILE",
            help="File with the token of requests that load and unload models; default: the variable "
            f"{ADMIN_TOKEN}, or no such requests.",
        ),
    ] = None,
    memory_megabytes: Annotated[
        int | None,
        typer.Option(
            "--memory-megabytes",
            min=1,
            help="Most memory of the process; a model that does not fit is not loaded.",
        ),
    ] = None,
    insecure: Annotated[
        bool,
        typer.Option("--insecure", help="Listen to other machines without a token."),
    ] = False,
    allowed_hosts: Annotated[
        str,
        typer.Option(
            "--allowed-hosts",
            metavar="NAME,…",
            help="Without a token: names by which clients may call the server, besides addresses and "
            "names without a dot; *.NAME for all below one, * for any.",
        ),
    ] = "",
    allowed_origins: Annotated[
        str,
        typer.Option(
            "--allowed-origins",
            metavar="ORIGIN,…",
            help="Sites whose pages may send requests from a browser (CORS), such as http://localhost:3000; "
            "* for any.",
        ),
    ] = "",
    open_page: Annotated[
        bool, typer.Option("--open", help="Open the server's page in a browser once it answers.")
    ] = False,
    precision: PrecisionOption = "auto",
    device: DeviceOption = "cpu",
    batch_tokens: BatchTokensOption = None,
    runtime: RuntimeOption = None,
    exit: ExitOption = None,
    layers: LayersOption = None,
    auto_truncate: Annotated[
        bool,
        typer.Option(
            "--auto-truncate",
            help="Cut too long texts unless a request has `truncate`; default: refuse them.",
        ),
    ] = False,
    body_bytes: Annotated[int, typer.Option("--body-bytes", min=1, help="Most bytes of a request.")] = 2
    * 1024
    * 1024,
    queue_tokens: Annotated[
        int,
        typer.Option(
            "--queue-tokens", min=1, help="Most tokens that wait; what is more is refused with 429."
        ),
    ] = 262_144,
    deadline_seconds: Annotated[
        float, typer.Option("--deadline-seconds", min=0.001, help="What takes longer is answered with 504.")
    ] = 30.0,
    header_seconds: Annotated[
        float,
        typer.Option(
            "--header-seconds", min=0.001, help="Time in which the head of a request must have arrived."
        ),
    ] = 10.0,
    body_seconds: Annotated[
        float,
        typer.Option(
            "--body-seconds", min=0.001, help="Time in which the body of a request must have arrived."
        ),
    ] = 30.0,
    idle_seconds: Annotated[
        float,
        typer.Option(
            "--idle-seconds", min=0.001, help="Time for which a connection without a request is kept."
        ),
    ] = 75.0,
    drain_seconds: Annotated[
        float,
        typer.Option("--drain-seconds", min=0.0, help="Time to finish what is in flight before ending."),
    ] = 30.0,
) -> None:
    """Answer over HTTP, and on a page in a browser.

    The answers are those of `albertine predict`. Clients of Hugging Face, OpenAI and
    text-embeddings-inference work with it. Ctrl-C or SIGTERM finishes the requests in flight and ends.
    With OTEL_EXPORTER_OTLP_ENDPOINT set, and albertine[otel] installed, traces are sent there."""
    from albertine.errors import SettingsError

    check_installed("serve")
    from albertine.serving.app import paths
    from albertine.serving.limits import ServingLimits, read_token
    from albertine.serving.models import Models
    from albertine.serving.origins import read_hosts, read_origins
    from albertine.serving.server import bound
    from albertine.serving.server import serve as run
    from albertine.serving.tracing import tracer_provider
    from albertine.tasks.early_exit import NoExits
    from albertine.tasks.predictor import Predictor

    log = _log_to_stderr()
    token, admin_token = read_token(token_file, TOKEN), read_token(admin_token_file, ADMIN_TOKEN)
    if not models and admin_token is None:
        raise SettingsError(
            "no model is named, and none can be loaded later",
            remedy="Name one, such as albertine-mini-en, or give --admin-token-file",
        )
    hosts, origins = read_hosts(_listed(allowed_hosts)), read_origins(_listed(allowed_origins))
    traces = tracer_provider()
    # The address first: to read a model and then find the port in use would be a waste.
    listening = bound(host, port, token=token, insecure=insecure)
    limits = ServingLimits(
        body_bytes=body_bytes,
        queue_tokens=queue_tokens,
        deadline_seconds=deadline_seconds,
        auto_truncate=auto_truncate,
        header_seconds=header_seconds,
        body_seconds=body_seconds,
        idle_seconds=idle_seconds,
        hosts=hosts,
        origins=origins,
    )

    def opened(model: str) -> Predictor:
        how: dict[str, Any] = {"device": device, "precision": precision, "batch_tokens": batch_tokens}
        how["layers"] = layers
        try:
            return Predictor(model, runtime=runtime, exit=exit, **how)
        except NoExits:
            log.warning("%s has no head after every layer: --exit does not apply to it", model)
            return Predictor(model, runtime=runtime, **how)

    served = Models(limits, paths(), opened, memory_megabytes=memory_megabytes)
    for given in models or ():
        served.add(*_name_and_model(given))
    shown, taken = listening.getsockname()[:2]
    where = f"http://{f'[{shown}]' if ':' in shown else shown}:{taken}"
    who = ", ".join(f"{one.model.name} ({', '.join(one.model.tasks)})" for one in served.services)
    if len(served.services) != 1:
        who = f"a server of {who}" if who else "a server without a model"
    message = f"{who} answers at {where}; its page is {where}/; Ctrl-C ends"

    def started() -> None:
        typer.echo(message, err=True)
        if open_page:
            _open_in_browser(f"{_address_of_page(listening.getsockname())}/")

    unfinished = run(
        served,
        listening,
        token,
        drain_seconds,
        started,
        host=host,
        traces=traces,
        admin_token=admin_token,
    )
    if traces is not None:
        traces.shutdown()  # sends what is left
    if unfinished:
        typer.echo(f"ended with {unfinished} request{'s' * (unfinished > 1)} unanswered", err=True)
    if served.computing:
        _end_now(1 if unfinished else 0)
    if unfinished:
        raise typer.Exit(1)


def check_installed(verb: str) -> None:
    """
    Raises:
        MissingExtra: a package of the server is not installed.
    """
    from albertine.errors import MissingExtra

    try:
        import httptools  # noqa: F401
        import orjson  # noqa: F401
        import prometheus_client  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingExtra(
            f"{verb} needs {error.name}, which is not installed", remedy="pip install 'albertine[serve]'"
        ) from error


def _name_and_model(given: str) -> tuple[str, str]:
    """The name and the model of an argument `NAME=MODEL` or `MODEL`."""
    name, separator, model = given.partition("=")
    if separator and model and "/" not in name and not Path(given).exists():
        return name, model
    return Path(given.rstrip("/")).name or given, given


def _address_of_page(address: tuple[Any, ...]) -> str:
    """The address of a socket for a browser on this machine, also of one that listens on all addresses."""
    host, port = address[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def _open_in_browser(address: str) -> None:
    """Open a page, in a thread, since some browsers return only when they are closed. Without a display
    `webbrowser` would start one of the terminal, in which the page does not work."""
    import sys
    import webbrowser

    shown = sys.platform != "linux" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    if not shown and "BROWSER" not in os.environ:
        typer.echo(f"there is no display: open {address} in a browser", err=True)
        return

    def opened() -> None:
        if not webbrowser.open(address):
            typer.echo(f"no browser was found: open {address} in one", err=True)

    Thread(target=opened, name="albertine browser", daemon=True).start()


def _end_now(code: int) -> NoReturn:
    """End without Python's own end: it would wait for a thread that tokenises, and take the interpreter from
    under one that computes, which ends the process by SIGABRT."""
    import logging
    import sys

    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _listed(given: str) -> list[str]:
    """What stands between commas."""
    return [one.strip() for one in given.split(",") if one.strip()]


def _log_to_stderr() -> logging.Logger:
    """The log of the server, on standard error."""
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.WARNING)
    log = logging.getLogger("albertine.serving")
    log.setLevel(logging.INFO)
    return log
