"""What `pip install` gives: the packages are built, and used from an empty folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The source distribution, and the wheel that is made of it."""
    pytest.importorskip("setuptools", minversion="77")
    folder = tmp_path_factory.mktemp("packages")
    source, out = folder / "source", folder / "out"
    out.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in"):
        source.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, source)
    left_out = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", source / "src", ignore=left_out)
    shutil.copytree(ROOT / "tests", source / "tests", ignore=left_out)

    def build(kind: str, where: Path) -> Path:
        hook = f"from setuptools import build_meta; print(build_meta.build_{kind}({str(out)!r}))"
        command = [sys.executable, "-c", hook]
        done = subprocess.run(command, cwd=where, capture_output=True, text=True, check=True)
        return out / done.stdout.splitlines()[-1]

    found = {"sdist": build("sdist", source)}
    shutil.unpack_archive(found["sdist"], folder / "unpacked")
    (unpacked,) = (folder / "unpacked").iterdir()
    return {**found, "wheel": build("wheel", unpacked)}


def test_packages_have_what_is_used_and_no_test_without_its_helpers(built: dict[str, Path]) -> None:
    with tarfile.open(built["sdist"]) as archive:
        source = {name.partition("/")[2] for name in archive.getnames()}
    with zipfile.ZipFile(built["wheel"]) as archive:
        wheel = set(archive.namelist())
    assert not [name for name in source if name.startswith("tests")]
    assert {"LICENSE", "README.md", "pyproject.toml"} <= source
    recipes = {
        f"albertine/recipes/{path.relative_to(ROOT / 'recipes').as_posix()}"
        for path in (ROOT / "recipes").rglob("*.yaml")
    }
    assert len(recipes) > 40 and recipes <= wheel
    assert {f"src/{name}" for name in recipes} <= source
    assert {"albertine/py.typed", "albertine/tasks/datasets/known.yaml"} <= wheel
    assert "albertine/released/albertine-mini-en/model.safetensors" in wheel


@pytest.mark.parametrize(
    "words",
    [
        ["pretrain", "--config", "recipes/albertine-tiny-en.yaml"],
        ["pretrain", "--config", "albertine-tiny-en"],
        ["finetune", "--config", "recipes/finetune/mnli.yaml"],
        ["finetune", "--suite", "glue", "encoder.folder=albertine-mini-en"],
    ],
    ids=" ".join,
)
def test_a_recipe_is_found_where_only_the_package_is(
    built: dict[str, Path], tmp_path: Path, words: list[str]
) -> None:
    installed = tmp_path / "installed"
    with zipfile.ZipFile(built["wheel"]) as archive:
        archive.extractall(installed)
    empty = tmp_path / "empty"
    empty.mkdir()
    command = [sys.executable, "-m", "albertine", *words, "--dry-run"]
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    done = subprocess.run(command, cwd=empty, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "name: " in done.stdout and not list(empty.iterdir())
