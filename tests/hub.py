"""A hub on this machine: its cache, laid out as its own programs lay it out, and a server that speaks as it
does."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

COMMIT, OTHER = "0123456789abcdef0123456789abcdef01234567", "89abcdef0123456789abcdef0123456789abcdef"


def keep(cache: Path, name: str, files: Mapping[str, bytes], commit: str = COMMIT, ref: str = "main") -> Path:
    """Files of a model in a cache: blobs by their hash, links to them in a snapshot, its commit in a ref."""
    storage = cache / f"models--{name.replace('/', '--')}"
    snapshot = storage / "snapshots" / commit
    for file, content in files.items():
        blob = storage / "blobs" / hashlib.sha256(content).hexdigest()
        link = snapshot / file
        blob.parent.mkdir(parents=True, exist_ok=True)
        link.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(content)
        link.symlink_to(os.path.relpath(blob, link.parent))
    (storage / "refs" / ref).parent.mkdir(parents=True, exist_ok=True)
    (storage / "refs" / ref).write_text(commit)
    return snapshot


def contents(folder: Path) -> dict[str, bytes]:
    """The files of a folder, by their paths in it."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


class Hub:
    """A server of models: their files by name, and names that not everyone may have; `asked` has the paths of
    files that were fetched."""

    def __init__(self) -> None:
        self.models: dict[str, dict[str, bytes]] = {}
        self.gated: set[str] = set()
        self.asked: list[str] = []
        self.url = ""

    def answer(self, path: str) -> tuple[int, bytes, dict[str, str]]:
        """Status, body and headers of a GET."""
        api = path.startswith("/api/models/")
        words = path.removeprefix("/api/models/").strip("/").split("/")
        name = "/".join(words[:2])
        files = self.models.get(name)
        if files is None:
            return 404, b"", {"X-Error-Code": "RepoNotFound"}
        if name in self.gated and not api:
            return 403, b"", {"X-Error-Code": "GatedRepo"}
        what, rest = words[2:3], words[3:]
        if rest and rest[0] not in ("main", COMMIT):
            return 404, b"", {"X-Error-Code": "RevisionNotFound"}
        if api and what == ["tree"]:
            rows = [
                {"type": "file", "path": file, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
                for file, content in files.items()
            ]
            return 200, json.dumps(rows).encode(), {}
        if api:
            listed = [{"rfilename": file} for file in files]
            return (
                200,
                json.dumps({"id": name, "sha": COMMIT, "siblings": listed}).encode(),
                {},
            )
        file = "/".join(rest[1:])
        if file not in files:
            return 404, b"", {"X-Error-Code": "EntryNotFound"}
        tag = hashlib.sha256(files[file]).hexdigest()
        return 200, files[file], {"ETag": f'"{tag}"', "X-Repo-Commit": COMMIT}


@contextmanager
def serving(hub: Hub) -> Iterator[Hub]:
    """The hub behind a port of this machine, named in its `url`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            status, body, headers = hub.answer(path)
            if "/resolve/" in path and self.command == "GET":
                hub.asked.append(path.partition("/resolve/")[2].partition("/")[2])
            self.send_response(status)
            for key, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(key, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET

        def log_message(self, *arguments: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=[0.01], daemon=True)
        thread.start()
        hub.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield hub
        finally:
            server.shutdown()
            thread.join()
