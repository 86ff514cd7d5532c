"""`albertine serve` as a process: signals, wrong flags, what it prints."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from albertine.cli.app import run
from albertine.serving.limits import ServingLimits
from tests.warm_process import WarmProcess

Folders = Callable[[str], Path]

ROOT = Path(__file__).resolve().parents[2]
START = "import sys{more}\nfrom albertine.cli.app import run; raise SystemExit(run(sys.argv[1:]))"
HURRIED = "\nimport albertine.serving.server as serving\nserving.READING = 0.5\n"


def command(*arguments: str | Path, more: str = "", **environment: str) -> tuple[list[str], dict[str, str]]:
    """The command line and the environment of a server."""
    own = {key: value for key, value in os.environ.items() if key != "ALBERTINE_TOKEN"}
    own |= {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "HF_HUB_OFFLINE": "1", **environment}
    return [sys.executable, "-c", START.format(more=more), "serve", *map(str, arguments)], own


@contextmanager
def process(
    *arguments: str | Path, more: str = "", own_interpreter: bool = False, **environment: str
) -> Iterator[tuple[Any, str]]:
    """A server on a free port, and its address.

    Args:
        more: code that is executed before the command.
        own_interpreter: whether it begins and ends as the command does, instead of as a fork.
    """
    line, own = command(*arguments, "--port", "0", more=more, **environment)
    if own_interpreter:
        started: Any = subprocess.Popen(line, env=own, stderr=subprocess.PIPE, text=True)
    else:
        started = WarmProcess(line[line.index("serve") :], environment=own, code="import sys" + more)
    try:
        before = []
        while " answers at http" not in (stderr_line := started.stderr.readline()):  # "" once it has ended
            before.append(stderr_line)
            assert stderr_line, "".join(before)
        yield started, stderr_line.split(" answers at ")[1].split(";")[0]
    finally:
        started.kill()
        started.wait()
        started.stderr.close()


def request(url: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    """Status and JSON of an answer; 0 if there was none."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, headers)
    try:
        with urllib.request.urlopen(request, timeout=20) as found:
            text = found.read()
            return found.status, json.loads(text) if text[:1] in b'{["' else text
    except urllib.error.HTTPError as error:
        text = error.read()
        return error.code, json.loads(text) if text[:1] == b"{" else text
    except OSError:
        return 0, None


def slow(seconds: float) -> str:
    """Code after which a step with the text "never" takes so long."""
    return f"""
import time
from albertine.inference.embedding import TextEmbedder
plain = TextEmbedder.of_tokens
def waiting(self, ids, **how):
    time.sleep({seconds} * (self.tokenizer.encode("never") in ids))
    return plain(self, ids, **how)
TextEmbedder.of_tokens = waiting
"""


HELD = """
import os, sys, time
from albertine.inference.embedding import TextEmbedder
plain = TextEmbedder.of_tokens
def held(self, ids, **how):
    if self.tokenizer.encode("never") in ids:
        print("computing", file=sys.stderr, flush=True)
        while not os.path.exists(os.environ["RELEASE"]):
            time.sleep(0.01)
    return plain(self, ids, **how)
TextEmbedder.of_tokens = held
"""
"""Code after which a step with the text "never" takes until the file that `RELEASE` names is there."""
BUSY = """
import numpy, sys, torch
from albertine.inference.embedding import TextEmbedder
plain = TextEmbedder.of_tokens
def computing(self, ids, **how):
    a = torch.ones(600, 600)
    if self.tokenizer.encode("never") in ids:
        print("computing", file=sys.stderr, flush=True)
    while self.tokenizer.encode("never") in ids:
        a = a @ a
    return plain(self, ids, **how)
TextEmbedder.of_tokens = computing
"""
"""Code after which a step with the text "never" computes for ever, as a hanging runtime does."""


def wait_for(server: Any, text: str) -> str:
    """The next line with a text that a server prints."""
    before = []
    while text not in (line := server.stderr.readline()):  # "" once it has ended
        before.append(line)
        assert line, "".join(before)
    return str(line)


def test_sigterm_finishes_what_is_in_flight(folder: Folders) -> None:
    """Catches: uvicorn's second signal, after which the process ends with 143; sockets closed during an
    answer; new requests accepted; texts in the log."""
    with process(folder("embed"), more=slow(0.8)) as (server, url):
        answers: list[tuple[int, Any]] = []
        threads = [
            threading.Thread(target=lambda: answers.append(request(url, "/embed", {"inputs": ["never"]})))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        time.sleep(0.3)
        assert request(url, "/health/ready")[0] == 200
        server.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        status, body = request(url, "/health/ready")
        assert (status, body["code"]) == (503, "draining")
        assert request(url, "/embed", {"inputs": "who"})[0] == 503
        assert request(url, "/health/live")[0] == 200
        for thread in threads:
            thread.join(20)
        assert [status for status, _ in answers] == [200] * 8
        assert server.wait(10) == 0
        log = server.stderr.read()
    assert log.count("POST /embed 200") == 8 and "never" not in log and "Traceback" not in log


def test_what_takes_too_long_is_left(folder: Folders) -> None:
    """Catches: a hanging step that keeps the process alive for ever; an exit code of success; a traceback,
    and an answer of bare text, for what uvicorn cancels."""
    with process(folder("embed"), "--drain-seconds", "0.3", more=slow(60), own_interpreter=True) as (
        server,
        url,
    ):
        answers: list[tuple[int, Any]] = []
        thread = threading.Thread(target=lambda: answers.append(request(url, "/embed", {"inputs": "never"})))
        thread.start()
        time.sleep(0.3)
        server.send_signal(signal.SIGTERM)
        assert server.wait(10) == 1
        log = server.stderr.read()
        assert "1 request unanswered" in log and "Traceback" not in log
        assert log.count("POST /embed 503") == 1
        thread.join(20)
    [(status, body)] = answers
    assert status == 503 and body["code"] == "draining" and body["request_id"]


@contextmanager
def unread(url: str, server: Any) -> Iterator[socket.socket]:
    """A connection whose answer is written and not read: it is longer than what a system keeps of it."""
    host, port = url.removeprefix("http://").split(":")
    body = json.dumps({"inputs": "who " * 150_000}).encode()
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(20)
        connection.connect((host, int(port)))
        connection.sendall(
            b"POST /tokenize HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(body) + body
        )
        wait_for(server, "POST /tokenize 200")
        yield connection


@pytest.mark.matrix
def test_an_answer_that_is_read_late_is_sent_to_its_end(folder: Folders) -> None:
    """Catches: an answer taken for finished while it waits for its client; a limit of a second on that."""
    with process(folder("embed")) as (server, url), unread(url, server) as connection:
        server.send_signal(signal.SIGTERM)
        time.sleep(2)
        with connection.makefile("rb") as answer:
            head = b"".join(iter(answer.readline, b"\r\n"))
            length = int(head.partition(b"content-length: ")[2].split(b"\r\n")[0])
            assert len(answer.read(length)) == length > 9_000_000
        assert server.wait(10) == 0


def test_an_answer_that_is_not_read_counts_as_unanswered(folder: Folders) -> None:
    with process(folder("embed"), "--drain-seconds", "0.3") as (server, url), unread(url, server):
        server.send_signal(signal.SIGTERM)
        assert server.wait(10) == 1
        assert "1 request unanswered" in server.stderr.read()


def test_ctrl_c_ends_an_idle_server_at_once(folder: Folders, tmp_path: Path) -> None:
    """And the token of a file wins over that of the environment, and is never printed. Catches: a byte-order
    mark that belongs to the token."""
    file = tmp_path / "token"
    file.write_text("\ufefffrom a file\n", encoding="utf-8")  # as editors of Windows write it
    arguments = (folder("single"), "--token-file", file, "--host", "0.0.0.0")
    with process(*arguments, ALBERTINE_TOKEN="other") as (server, url):
        url = url.replace("0.0.0.0", "127.0.0.1")
        assert request(url, "/info")[0] == 401
        assert request(url, "/info", authorization="Bearer other")[0] == 401
        assert request(url, "/info", authorization="Bearer from a file")[0] == 200
        server.send_signal(signal.SIGINT)
        assert server.wait(10) == 0  # and not after the --drain-seconds that requests under way would have
        log = server.stderr.read()
        assert "from a file" not in log and "Traceback" not in log


def test_a_client_that_closes_its_connection_receives_the_error_of_a_large_body(folder: Folders) -> None:
    """Catches: a socket that is closed while the client is still sending."""
    with process(folder("embed"), "--body-bytes", "1000") as (_, url):
        for _ in range(2):
            status, body = request(url, "/embed", {"inputs": "a" * 40_000_000})
            assert status == 413 and body["code"] == "body_too_large"
        with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as old:
            old.sendall(b"POST /embed HTTP/1.0\r\nContent-Length: 40000000\r\n\r\n" + b"a" * 40_000_000)
            assert old.recv(100).startswith(b"HTTP/1.1 413 ")


FEW = "\nimport resource; resource.setrlimit(resource.RLIMIT_NOFILE, (90, 90))"


@pytest.mark.sample(1)
@pytest.mark.parametrize("sent", [b"", b"GET /health HTTP/1.1\r\nHost: local", b"\r\n"])
def test_clients_that_send_no_request_do_not_keep_others_out(folder: Folders, sent: bytes) -> None:
    """Catches: connections up to the limit of open files; a traceback for each that cannot be accepted."""
    patient = "--header-seconds", "600", "--idle-seconds", "600"  # so that none ends by the time it takes
    with process(folder("embed"), *patient, more=FEW) as (server, url), ExitStack() as stack:
        for _ in range(130):
            stack.enter_context(connected(url)).sendall(sent)
        for _ in range(3):
            assert request(url, "/embed", {"inputs": "who"})[0] == 200
        server.terminate()
        assert server.wait(10) == 0
        assert "Traceback" not in server.stderr.read()


NAMED = """
import socket
resolve = socket.getaddrinfo
def resolved(host, *rest, **named):
    return resolve("127.0.0.1" if host == "albert.example" else host, *rest, **named)
socket.getaddrinfo = resolved
"""


def test_a_server_is_called_by_the_name_that_it_listens_on(folder: Folders) -> None:
    with process(folder("embed"), "--host", "albert.example", "--insecure", more=NAMED) as (_, url):
        assert request(url, "/info", host="albert.example")[0] == 200
        assert request(url, "/embed", {"inputs": "who"}, host="Albert.Example:8080")[0] == 200
        assert request(url, "/info", host="evil.example")[0] == 403


def connected(url: str) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=10)


def received(client: socket.socket) -> bytes:
    """Everything until the server closes."""
    parts = []
    with suppress(ConnectionResetError):
        while part := client.recv(1 << 16):
            parts.append(part)
    return b"".join(parts)


def posted(body: bytes, *lines: str, path: str = "/embed") -> bytes:
    head = [f"POST {path} HTTP/1.1", "Host: localhost", *lines, f"Content-Length: {len(body)}"]
    return "\r\n".join([*head, "", ""]).encode() + body


WHO = b'{"inputs": "who"}'


@pytest.fixture(scope="module")
def bounded(folder: Folders) -> Iterator[str]:
    """The address of a server with little patience, whose answer to "never" takes half a second."""
    bounds = ["--header-seconds", "0.5", "--body-seconds", "1", "--idle-seconds", "1.5"]
    with process(folder("embed"), *bounds, more=slow(0.5)) as (_, url):
        yield url


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("sent", "then", "seconds", "answer"),
    [
        (b"", b"", 0.5, b""),
        (b"GET /health HTTP/1.1\r\nX: ", b"", 0.5, b" 408 "),
        (b"GET /health HTTP/1.1\r\nX: ", b"a", 0.5, b""),
        (posted(WHO)[:-3], b"", 1.0, b" 408 "),
        (posted(b"a" * 9999, path="/nowhere")[:-9000], b"a", 1.0, b" 404 "),
        (posted(WHO), b"", 1.5, b" 200 "),
        (posted(WHO) + b"GET /health HT", b"", 0.5, b" 408 "),
    ],
    ids=[
        "nothing",
        "half a head",
        "a head of single bytes",
        "half a body",
        "half a body that is not read",
        "idle",
        "a half second head",
    ],
)
def test_a_connection_ends_whose_client_is_slow(
    bounded: str, sent: bytes, then: bytes, seconds: float, answer: bytes
) -> None:
    """Catches: no bound on the time of a head, of a body that no route reads, of a connection without
    requests; a bound that each byte prolongs."""
    began = time.monotonic()
    with connected(bounded) as client:
        client.sendall(sent)
        client.settimeout(0.1)
        found, ended = b"", False
        while not ended and time.monotonic() - began < 60:
            try:
                part = client.recv(1 << 16)
                found, ended = found + part, not part
                client.sendall(then)
            except TimeoutError:
                client.sendall(then)
            except OSError:  # reset, since the last byte came too late
                ended = True
        assert ended and time.monotonic() - began > seconds - 0.1
        assert answer in found


@pytest.mark.sample(1)
@pytest.mark.parametrize("version", ["1.1", "1.0"])
def test_a_client_that_half_closes_gets_the_answer(bounded: str, version: str) -> None:
    for body in (WHO, b'{"inputs": ["never"]}'):
        with connected(bounded) as client:
            client.sendall(posted(body).replace(b"HTTP/1.1", f"HTTP/{version}".encode()))
            client.shutdown(socket.SHUT_WR)
            found = received(client)
            while found.startswith(b"HTTP/1.1 100 "):  # interim, which clients skip
                found = found.partition(b"\r\n\r\n")[2]
            assert found.startswith(b"HTTP/1.1 200 ") and b"[[" in found
    with connected(bounded) as client:  # two requests at once
        client.sendall(posted(WHO) * 2)
        client.shutdown(socket.SHUT_WR)
        assert received(client).count(b" 200 OK") == 2


def test_a_client_that_leaves_is_not_answered(folder: Folders, tmp_path: Path) -> None:
    """Catches: a client that closed taken for one that only ended its side."""
    release = tmp_path / "release"
    with process(folder("embed"), more=HELD, RELEASE=str(release)) as (server, url):
        first = threading.Thread(target=lambda: request(url, "/embed", {"inputs": ["never"]}))
        first.start()
        wait_for(server, "computing")
        with connected(url) as client:
            client.sendall(posted(WHO))
        assert "POST /embed 499" in wait_for(server, "POST /embed")
        release.touch()
        first.join()
        server.terminate()
        server.wait(60)
        log = server.stderr.read()
    assert log.count("POST /embed 200") == log.count("POST /embed") == 1


@pytest.mark.sample(1)
@pytest.mark.parametrize("version", ["1.1", "1.0"])
def test_a_request_of_two_lengths_is_refused_and_the_connection_closed(bounded: str, version: str) -> None:
    hidden = b"GET /info HTTP/1.1\r\nHost: localhost\r\n\r\n"
    head = f"POST /embed HTTP/{version}\r\nHost: localhost\r\nContent-Length: 5\r\n".encode()
    with connected(bounded) as client:
        client.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden)
        found = received(client)
    assert found.startswith(b"HTTP/1.1 400 ") and found.count(b"HTTP/1.1 ") == 1
    assert b"unclear_length" in found
    assert request(bounded, "/embed", {"inputs": "who"})[0] == 200


@pytest.mark.parametrize("end", ["late", "second signal"])
def test_an_end_in_the_middle_of_computing_is_exit_code_1(folder: Folders, end: str) -> None:
    """Catches: SIGABRT of a thread whose interpreter is gone."""
    seconds = "0.1" if end == "late" else "30"
    with process(folder("embed"), "--drain-seconds", seconds, more=BUSY, own_interpreter=True) as (
        server,
        url,
    ):
        body = {"inputs": ["never", "who"]}
        threads = [threading.Thread(target=lambda: request(url, "/embed", body)) for _ in range(3)]
        for thread in threads:
            thread.start()
        wait_for(server, "computing")
        server.send_signal(signal.SIGTERM)
        if end == "second signal":
            wait_for(server, "ending; requests in flight")
            server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 1
        assert "unanswered" in server.stderr.read()
        for thread in threads:
            thread.join()


def test_help_needs_nothing() -> None:
    """Catches: an import of a library at the top of `cli/serve.py`."""
    libraries = "starlette", "uvicorn", "prometheus_client", "torch", "numpy"
    line, own = command("--help", more=f"\nsys.modules.update(dict.fromkeys({libraries}))")
    found = subprocess.run(line, env=own, capture_output=True, text=True, timeout=60)
    assert found.returncode == 0 and "--drain-seconds" in found.stdout


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """The one line of a command that is refused."""
    monkeypatch.delenv("ALBERTINE_TOKEN", raising=False)

    def of(*arguments: str | Path) -> str:
        assert run(["serve", *map(str, arguments)]) == 2
        stderr = capsys.readouterr().err
        assert "Traceback" not in stderr and stderr.count("\n") == 1, stderr
        return stderr

    return of


def test_what_is_wrong_is_one_line_with_its_remedy(
    refused: Callable[..., str], folder: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches: a traceback of a port in use; an open server without a token; an empty token."""
    for host in ("0.0.0.0", "::"):
        assert "--insecure" in refused(folder("single"), "--host", host, "--port", "0")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        stderr = refused(folder("single"), "--port", port)
        assert "already in use" in stderr and "--port" in stderr
    for host in ("a..b", "a" * 64):  # which Python cannot write as the names of a network are written
        assert f"cannot listen on {host}" in refused(folder("single"), "--host", host, "--insecure")
    assert "neither a folder nor a released" in refused(tmp_path / "nowhere", "--port", "0")
    (tmp_path / "empty").write_text(" \n")
    assert "holds no token" in refused(folder("single"), "--token-file", tmp_path / "empty")
    assert "Check the path" in refused(folder("single"), "--token-file", tmp_path / "nowhere")
    assert "give --admin-token-file" in refused("--port", "0")
    assert "two models have the name single" in refused(folder("single"), folder("single"), "--port", "0")
    small = refused(folder("single"), "--port", "0", "--memory-megabytes", "1")
    assert "may take 1; unload a model, or start it with a larger --memory-megabytes" in small
    bare = shutil.copytree(folder("single"), tmp_path / "bare")
    for file in ("vocab.txt", "tokenizer.json"):
        (bare / file).unlink(missing_ok=True)
    assert "vocabulary" in refused(bare, "--port", "0")
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    missing = "serve needs uvicorn, which is not installed. pip install 'albertine[serve]'"
    assert refused(folder("single")) == f"albertine: {missing}\n"


def test_two_models_by_name(folder: Folders) -> None:
    with process(f"a={folder('embed')}", f"b={folder('single')}") as (server, url):
        assert [one["id"] for one in request(url, "/v1/models")[1]["data"]] == ["a", "b"]
        assert request(url, "/models/b/predict", {"inputs": "the old man"})[0] == 200
        server.send_signal(signal.SIGTERM)
        assert server.wait(10) == 0


def test_a_server_that_has_yet_to_load_a_model(folder: Folders, tmp_path: Path) -> None:
    with process(ALBERTINE_ADMIN_TOKEN="secret") as (server, url):
        assert request(url, "/embed", {"inputs": "the old man"})[0] == 503
        body = json.dumps({"model": str(folder("embed"))}).encode()
        load = urllib.request.Request(
            f"{url}/v1/models/late", body, {"authorization": "secret"}, method="PUT"
        )
        with urllib.request.urlopen(load, timeout=20) as found:
            assert found.status == 200
        assert request(url, "/embed", {"inputs": "the old man"})[0] == 200
        server.send_signal(signal.SIGTERM)
        assert server.wait(10) == 0


def test_every_flag_reaches_the_server(folder: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ALBERTINE_TOKEN", raising=False)
    monkeypatch.setenv("ALBERTINE_ADMIN_TOKEN", "of the administrator")
    seen: list[Any] = []

    def noted(
        models: Any, listening: Any, token: Any, drain: float, started: Any, host: str, **more: Any
    ) -> int:
        listening.close()
        seen.append((models, token, drain, host, more))
        return 0

    monkeypatch.setattr("albertine.serving.server.serve", noted)
    flags = ["--precision", "bfloat16", "--batch-tokens", "9", "--auto-truncate"]
    flags += ["--body-bytes", "1000", "--queue-tokens", "200", "--deadline-seconds", "7.5"]
    flags += ["--header-seconds", "1.5", "--body-seconds", "2.5", "--idle-seconds", "3.5"]
    flags += ["--allowed-hosts", "Albert.example, *.local", "--allowed-origins", "http://localhost:3000"]
    assert (
        run(
            [
                "serve",
                f"mine={folder('embed')}",
                "--host",
                "localhost",
                "--port",
                "0",
                "--drain-seconds",
                "3",
                *flags,
            ]
        )
        == 0
    )
    [(models, token, drain, host, more)] = seen
    service = models.find("mine")
    assert more == {"traces": None, "admin_token": b"of the administrator"}
    assert service.limits == ServingLimits(
        body_bytes=1000,
        header_seconds=1.5,
        body_seconds=2.5,
        idle_seconds=3.5,
        queue_tokens=200,
        deadline_seconds=7.5,
        auto_truncate=True,
        hosts=("albert.example", "*.local"),
        origins=("http://localhost:3000",),
    )
    assert (service.model.name, service.model.number_format) == ("mine", "bfloat16")
    assert (service.engine.budget, token, drain, host) == (9, None, 3.0, "localhost")


def test_an_answer_that_is_not_read_is_given_up(folder: Folders) -> None:
    with process(folder("embed"), more=HURRIED) as (server, url), unread(url, server) as connection:
        time.sleep(2)
        size = 0
        with suppress(ConnectionResetError):
            while part := connection.recv(1 << 16):
                size += len(part)
        assert size < 9_000_000
        server.send_signal(signal.SIGTERM)
        assert server.wait(10) == 0


@pytest.mark.matrix
def test_an_answer_that_is_given_up_at_the_end_is_unanswered(folder: Folders) -> None:
    """Catches: an exit code of success, and a log that does not mention it."""
    arguments = (folder("embed"), "--drain-seconds", "30")
    with process(*arguments, more=HURRIED) as (server, url), unread(url, server):
        server.send_signal(signal.SIGTERM)
        assert server.wait(10) == 1
        log = server.stderr.read()
    assert "its client read nothing for 0.5 s" in log and "1 request unanswered" in log


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell what they hold")
def test_an_answer_that_is_read_slowly_is_not_given_up(folder: Folders) -> None:
    """Catches: a client taken for gone while the system sends it what it has taken from us before."""
    hurried = HURRIED.replace("0.5", "1.5")
    with process(folder("embed"), more=hurried) as (server, url), unread(url, server) as connection:
        with connection.makefile("rb") as answer:
            head = b"".join(iter(answer.readline, b"\r\n"))
            length = int(head.partition(b"content-length: ")[2].split(b"\r\n")[0])
            size = 0
            for _ in range(30):
                time.sleep(0.1)
                size += len(answer.read(10_000))
            assert size + len(answer.read(length - size)) == length
        server.send_signal(signal.SIGTERM)
        assert server.wait(10) == 0


def test_open(folder: Folders, tmp_path: Path) -> None:
    """Catches: another address than that of the page; a browser of the terminal where there is no display."""
    script, opened = tmp_path / "browser", tmp_path / "opened"
    script.write_text(f'#!/bin/sh\necho "$1" > {opened}.part && mv {opened}.part {opened}\n')
    script.chmod(0o755)
    with process(folder("embed"), "--open", own_interpreter=True, BROWSER=f"{script} %s") as (_, url):
        end = time.monotonic() + 20
        while not opened.exists():
            assert time.monotonic() < end
            time.sleep(0.01)
        assert opened.read_text().strip() == f"{url}/"
    hidden = dict.fromkeys(("DISPLAY", "WAYLAND_DISPLAY"), "")
    with process(
        folder("embed"), "--open", more="; import os; os.environ.pop('BROWSER', None)", **hidden
    ) as (
        server,
        url,
    ):
        if sys.platform == "linux":
            assert server.stderr.readline() == f"there is no display: open {url}/ in a browser\n"
