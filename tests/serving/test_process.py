"""`albertine serve` as a process: signals, wrong flags, what it prints."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.inference.exports import tuned

ROOT = Path(__file__).resolve().parents[2]
START = "import sys{more}\nfrom albertine.cli.app import run; raise SystemExit(run(sys.argv[1:]))"


def command(*arguments: str | Path, more: str = "", **environment: str) -> tuple[list[str], dict[str, str]]:
    """The command line and the environment of a server."""
    own = {key: value for key, value in os.environ.items() if key != "ALBERTINE_TOKEN"}
    own |= {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "HF_HUB_OFFLINE": "1", **environment}
    return [sys.executable, "-c", START.format(more=more), "serve", *map(str, arguments)], own


@contextmanager
def process(*arguments: str | Path, more: str = "", **environment: str) -> Iterator[tuple[Any, str]]:
    """A server on a free port, and its address."""
    line, own = command(*arguments, "--port", "0", more=more, **environment)
    started = subprocess.Popen(line, env=own, stderr=subprocess.PIPE, text=True)
    assert started.stderr is not None
    try:
        said = started.stderr.readline()
        assert " answers at http" in said, said + started.stderr.read()
        yield started, said.split(" answers at ")[1].split(";")[0]
    finally:
        started.kill()
        started.wait()
        started.stderr.close()


def ask(url: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    """Status and JSON of an answer; 0 if there was none."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, headers)
    try:
        with urllib.request.urlopen(request, timeout=20) as found:
            text = found.read()
            return found.status, json.loads(text) if text[:1] in b'{["' else text
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())
    except OSError:
        return 0, None


def refused(*arguments: str | Path, more: str = "", **environment: str) -> str:
    """The one line of a command that is refused."""
    line, own = command(*arguments, more=more, **environment)
    found = subprocess.run(line, env=own, capture_output=True, text=True, timeout=60)
    assert found.returncode == 2, found.stderr
    assert "Traceback" not in found.stderr and found.stderr.count("\n") == 1, found.stderr
    return found.stderr


def test_sigterm_finishes_what_is_in_flight(tmp_path: Path) -> None:
    """S6. Kills: uvicorn's second signal, after which the process ends with 143; sockets closed under an
    answer; new work taken in; a log of texts."""
    folder = tuned("embed", tmp_path / "model")
    slow = "\nfrom albertine.inference.embedding import TextEmbedder as E; import time; plain = E.__call__\n"
    slow += "E.__call__ = lambda self, texts, **k: (time.sleep(1.5 * ('never' in texts)), plain(self, texts, **k))[1]"
    with process(folder, more=slow) as (server, url):
        answers: list[tuple[int, Any]] = []
        threads = [
            threading.Thread(target=lambda: answers.append(ask(url, "/embed", {"inputs": ["never"]})))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        time.sleep(0.4)
        assert ask(url, "/health/ready")[0] == 200
        server.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        status, told = ask(url, "/health/ready")
        assert (status, told["code"]) == (503, "draining")
        assert ask(url, "/embed", {"inputs": "who"})[0] == 503
        assert ask(url, "/health/live")[0] == 200
        for thread in threads:
            thread.join(20)
        assert [status for status, _ in answers] == [200] * 8
        assert server.wait(10) == 0
        log = server.stderr.read()
    assert log.count("POST /embed 200") == 8 and "never" not in log and "Traceback" not in log


def test_ctrl_c_ends_an_idle_server_at_once(tmp_path: Path) -> None:
    with process(tuned("single", tmp_path / "model")) as (server, url):
        assert ask(url, "/predict", {"inputs": "who"})[0] == 200
        began = time.monotonic()
        server.send_signal(signal.SIGINT)
        assert server.wait(10) == 0 and time.monotonic() - began < 3
        assert "Traceback" not in server.stderr.read()


def test_what_takes_too_long_is_left(tmp_path: Path) -> None:
    """Kills: a hanging step that keeps the process for ever; an end that says all was well."""
    folder = tuned("embed", tmp_path / "model")
    hang = "\nfrom albertine.inference.embedding import TextEmbedder as E; import time; plain = E.__call__\n"
    hang += "E.__call__ = lambda self, texts, **k: (time.sleep(60 * ('never' in texts)), plain(self, texts, **k))[1]"
    with process(folder, "--drain-seconds", "0.3", more=hang) as (server, url):
        thread = threading.Thread(target=ask, args=(url, "/embed", {"inputs": "never"}))
        thread.start()
        time.sleep(0.3)
        server.send_signal(signal.SIGTERM)
        assert server.wait(10) == 1
        assert "1 request unanswered" in server.stderr.read()
        thread.join(20)


def test_the_token_of_a_file_and_of_the_environment(tmp_path: Path) -> None:
    folder, file = tuned("single", tmp_path / "model"), tmp_path / "token"
    file.write_text("from a file\n")
    with process(folder, "--token-file", file, "--host", "0.0.0.0", ALBERTINE_TOKEN="other") as (server, url):
        url = url.replace("0.0.0.0", "127.0.0.1")
        assert ask(url, "/info")[0] == 401
        assert ask(url, "/info", authorization="Bearer other")[0] == 401
        assert ask(url, "/info", authorization="Bearer from a file")[0] == 200
        server.send_signal(signal.SIGTERM)
        server.wait(10)
        assert "from a file" not in server.stderr.read()


def test_what_is_wrong_is_one_line_with_its_remedy(tmp_path: Path) -> None:
    folder = tuned("single", tmp_path / "model")
    assert "--insecure" in refused(folder, "--host", "0.0.0.0")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        assert "already in use" in (said := refused(folder, "--port", port)) and "--port" in said
    assert "no such" in refused(tmp_path / "nowhere")
    (tmp_path / "empty").write_text(" \n")
    assert "holds no token" in refused(folder, "--token-file", tmp_path / "empty")
    assert "Check the path" in refused(folder, "--token-file", tmp_path / "nowhere")
    (folder / "vocab.txt").unlink()
    (folder / "tokenizer.json").unlink(missing_ok=True)
    assert "vocab" in refused(folder) or "tokenizer" in refused(folder)
    missing = refused(folder, more="\nsys.modules['uvicorn'] = None")
    assert (
        missing == "albertine: serve needs uvicorn, which is not installed. pip install 'albertine[serve]'\n"
    )


@pytest.mark.parametrize("module", ["starlette", "uvicorn", "prometheus_client", "torch", "numpy"])
def test_help_needs_nothing(module: str) -> None:
    line, own = command("--help", more=f"\nsys.modules['{module}'] = None")
    found = subprocess.run(line, env=own, capture_output=True, text=True, timeout=60)
    assert found.returncode == 0 and "--drain-seconds" in found.stdout
