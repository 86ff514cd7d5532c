"""A hub on this machine: its cache, laid out as its own programs lay it out, and a server that speaks as it
does."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

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
    """A server of models: their files by name, and names with restricted access; `requested` lists the paths
    of files that were fetched."""

    def __init__(self) -> None:
        self.models: dict[str, dict[str, bytes]] = {}
        self.gated: set[str] = set()
        self.requested: list[str] = []
        self.url = ""
        self.token = "hf_of_the_owner"
        self.commits: list[dict[str, Any]] = []
        self.private: set[str] = set()
        self.branches: set[str] = set()
        self._uploaded: dict[str, bytes] = {}

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

    def take(self, path: str, body: bytes, token: str | None) -> tuple[int, bytes, dict[str, str]]:
        """Status, body and headers of a POST or PUT, as a program of the hub that sends files makes them."""
        if path.startswith("/storage/"):
            self._uploaded[path.rpartition("/")[2]] = body
            return 200, b"", {}
        if token != self.token:
            return 401, b'{"error": "Invalid credentials"}', {}
        tree = {} if path.partition("/commit/")[1] else json.loads(body or b"{}")
        if path == "/api/repos/create":
            name = f"{tree['organization']}/{tree['name']}"
            if not name.startswith("someone/"):
                return 403, b'{"error": "You have no rights here"}', {}
            if name in self.models:
                return 409, json.dumps({"url": f"{self.url}/{name}"}).encode(), {}
            self.models[name] = {}
            if tree.get("visibility") == "private" or tree.get("private"):
                self.private.add(name)
            return 200, json.dumps({"url": f"{self.url}/{name}"}).encode(), {}
        if path == "/api/validate-yaml":
            return 200, b'{"errors": [], "warnings": []}', {}
        if path.endswith("/info/lfs/objects/batch"):
            objects = [
                one | {"actions": {"upload": {"href": f"{self.url}/storage/{one['oid']}"}}}
                for one in tree["objects"]
            ]
            return 200, json.dumps({"transfer": "basic", "objects": objects}).encode(), {}
        words = path.removeprefix("/api/models/").split("/")
        name, what, revision = "/".join(words[:2]), words[2], "/".join(words[3:])
        if what == "branch":
            self.branches.add(revision)
            return 200, b"{}", {}
        if what == "preupload":
            large = (".safetensors", ".model", ".onnx", ".png")
            uploads = [
                {
                    "path": one["path"],
                    "uploadMode": "lfs" if one["path"].endswith(large) else "regular",
                    "shouldIgnore": False,
                }
                for one in tree["files"]
            ]
            return 200, json.dumps({"files": uploads}).encode(), {}
        return self._commit(name, revision, [json.loads(line) for line in body.splitlines()])

    def _commit(
        self, name: str, revision: str, rows: list[dict[str, Any]]
    ) -> tuple[int, bytes, dict[str, str]]:
        files = self.models[name]
        for row in rows:
            value = row["value"]
            if row["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif row["key"] == "lfsFile":
                content = self._uploaded[value["oid"]]
                assert hashlib.sha256(content).hexdigest() == value["oid"]
                files[value["path"]] = content
        self.commits.append({"name": name, "revision": revision, "rows": rows})
        answer = {"commitUrl": f"{self.url}/{name}/commit/{COMMIT}", "commitOid": COMMIT}
        return 200, json.dumps(answer).encode(), {}


@contextmanager
def serving(hub: Hub) -> Iterator[Hub]:
    """The hub behind a port of this machine, named in its `url`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            status, body, headers = hub.answer(path)
            if "/resolve/" in path and self.command == "GET":
                hub.requested.append(path.partition("/resolve/")[2].partition("/")[2])
            self.send_response(status)
            for key, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(key, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET

        def do_POST(self) -> None:
            body = self._body()
            token = (self.headers.get("authorization") or "").removeprefix("Bearer ") or None
            status, answer, headers = hub.take(self.path.partition("?")[0], body, token)
            self.send_response(status)
            kind = {"Content-Length": str(len(answer)), "Content-Type": "application/json"}
            for key, value in {**kind, **headers}.items():
                self.send_header(key, value)
            self.end_headers()
            self.wfile.write(answer)

        do_PUT = do_POST

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)

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
