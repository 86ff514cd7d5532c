"""Files of `deploy/`: they name options, targets, files and routes that there are, and the unit is valid. No
image is built here."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from albertine.cli.app import build
from albertine.serving.app import paths

ROOT = Path(__file__).resolve().parents[1]
DEPLOY = ROOT / "deploy"


def serve_options(arguments: list[str]) -> dict[str, Any]:
    """Options of `albertine serve` by its own parser."""
    verb = get_command(build()).commands["serve"]  # type: ignore[attr-defined]
    return dict(verb.make_context("serve", list(arguments)).params)


def instructions() -> list[tuple[str, str]]:
    """Instructions of the Dockerfile in order."""
    text = re.sub(r"^#.*\n", "", (DEPLOY / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", " ", text).splitlines()
    return [(name, rest.strip()) for name, _, rest in (line.partition(" ") for line in lines if line.strip())]


def copied(base: Path) -> Path:
    """The context of a build by `Dockerfile.dockerignore`, as far as COPY needs it."""
    allowed = [
        line.removeprefix("!")
        for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
        if line.startswith("!")
    ]
    for name in allowed:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, base / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, base / name)
    return base


def test_the_dockerfile(tmp_path: Path) -> None:
    """Catches: a file that the context leaves out, an extra that is not there, an image of root, options that
    the server does not have."""
    found, context = instructions(), copied(tmp_path)
    stages = [rest.split()[-1] for name, rest in found if name == "FROM"]
    assert {"onnx", "torch"} <= set(stages)
    for name, rest in found:
        if name == "COPY" and not rest.startswith("--from"):
            assert all((context / source).exists() for source in rest.split()[:-1]), rest
        if name == "COPY" and rest.startswith("--from"):
            assert rest.split()[0].removeprefix("--from=") in stages
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = re.findall(r"\[([a-z,]+)\]", "\n".join(rest for _, rest in found)) + [
        rest.partition("=")[2] for name, rest in found if name == "ARG" and rest.startswith("EXTRAS")
    ]
    assert len(named) == 2 and {one for part in named for one in part.split(",")} <= extras.keys()
    [user] = [rest for name, rest in found if name == "USER"]
    assert user not in ("root", "0")
    [entry], [command] = (
        [yaml.safe_load(rest) for name, rest in found if name == kind] for kind in ("ENTRYPOINT", "CMD")
    )
    options = serve_options(command)
    assert entry == ["albertine", "serve"] and options["host"] == "0.0.0.0" and not options["insecure"]
    assert f"EXPOSE {options['port']}" in (DEPLOY / "Dockerfile").read_text()
    [check] = [rest for name, rest in found if name == "HEALTHCHECK"]
    assert f":{options['port']}/health/live" in check


@pytest.mark.matrix
def test_the_package_is_complete_in_the_context(tmp_path: Path) -> None:
    """The wheel that the first stage builds. Catches: data that only the repository has."""
    (context := tmp_path / "context").mkdir()
    copied(context)
    run = [sys.executable, "-c", "from setuptools import build_meta as b; print(b.build_wheel('.'))"]
    built = subprocess.run(run, cwd=context, capture_output=True, text=True, check=True)
    names = zipfile.ZipFile(context / built.stdout.split()[-1]).namelist()
    assert {"albertine/serving/page/index.html", "albertine/py.typed"} <= set(names)


def test_compose_and_prometheus() -> None:
    """Catches: a secret of another name or place; a target or stage that is not there."""
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    server, prometheus = compose["services"]["albertine"], compose["services"]["prometheus"]
    options = serve_options(server["command"])
    stages = [rest.split()[-1] for name, rest in instructions() if name == "FROM"]
    assert re.fullmatch(r"\$\{ALBERTINE_TARGET:-(\w+)\}", server["build"]["target"])[1] in stages  # type: ignore[index]
    assert (DEPLOY / server["build"]["context"]).resolve() == ROOT
    assert (ROOT / server["build"]["dockerfile"]).is_file()
    model = server["volumes"][0].rpartition("}")[2].split(":")
    assert options["models"] == [model[1]] and model[2] == "ro" and server["read_only"] is True
    secrets = {f"/run/secrets/{name}" for name in compose["secrets"]}
    assert str(options["token_file"]) in secrets and set(server["secrets"]) == set(prometheus["secrets"])
    scraping = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())["scrape_configs"][0]
    assert scraping["authorization"]["credentials_file"] == str(options["token_file"])
    assert scraping["metrics_path"] in paths()
    [target] = scraping["static_configs"][0]["targets"]
    assert target == f"albertine:{options['port']}" and "albertine" in compose["services"]
    assert all(one.startswith("127.0.0.1:") for part in (server, prometheus) for one in part["ports"])
    grace = float(server["stop_grace_period"].removesuffix("s"))
    assert grace > options["drain_seconds"]


def unit() -> dict[str, list[str]]:
    lines = (DEPLOY / "albertine.service").read_text().splitlines()
    found: dict[str, list[str]] = {}
    for name, _, value in (line.partition("=") for line in lines if "=" in line and line[0] not in "#["):
        found.setdefault(name, []).append(value)
    return found


def test_the_unit_of_systemd() -> None:
    [line], [credential], [stop] = (
        unit()[name] for name in ("ExecStart", "LoadCredential", "TimeoutStopSec")
    )
    words = shlex.split(line)
    options = serve_options(words[2:])
    assert words[1] == "serve" and options["host"] == "127.0.0.1"
    assert str(options["token_file"]) == "${CREDENTIALS_DIRECTORY}/" + credential.partition(":")[0]
    assert float(stop) > options["drain_seconds"]
    for name, value in (("DynamicUser", "yes"), ("ProtectSystem", "strict"), ("NoNewPrivileges", "yes")):
        assert unit()[name] == [value]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_reads_the_unit(tmp_path: Path) -> None:
    text = (
        (DEPLOY / "albertine.service")
        .read_text()
        .replace("/opt/albertine/bin/albertine", shutil.which("true") or "")
    )
    file = tmp_path / "albertine.service"
    file.write_text(text)
    found = subprocess.run(["systemd-analyze", "verify", file], capture_output=True, text=True)
    assert found.returncode == 0 and not found.stderr.strip(), found.stderr
    file.write_text(text.replace("ProtectSystem=strict", "ProtectSystem=everything"))
    found = subprocess.run(["systemd-analyze", "verify", file], capture_output=True, text=True)
    assert "protect system" in found.stderr.lower()  # the check itself
