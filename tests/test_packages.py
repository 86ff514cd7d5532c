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

from albertine.core.released import DEFAULT_MODELS

EN, ZH = DEFAULT_MODELS["en"], DEFAULT_MODELS["zh"]
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


@pytest.fixture(scope="module")
def installed(built: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of packages with the content of the wheel."""
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(built["wheel"]) as archive:
        archive.extractall(folder)
    return folder


def output_in(folder: Path, installed: Path, *words: str) -> str:
    """Output of a process in a folder that imports the wheel before this checkout."""
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


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
    page = {file.name for file in (ROOT / "src/albertine/serving/page").iterdir()}
    assert {f"albertine/serving/page/{name}" for name in page} <= wheel and "index.html" in page
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
    installed: Path, tmp_path: Path, words: list[str]
) -> None:
    assert "name: " in output_in(tmp_path, installed, "-m", "albertine", *words, "--dry-run")
    assert not list(tmp_path.iterdir())


def test_an_installed_wheel_predicts_and_tunes(
    built: dict[str, Path], installed: Path, tmp_path: Path
) -> None:
    with zipfile.ZipFile(built["wheel"]) as archive:
        names = {name for name in archive.namelist() if name.startswith("albertine/released/")}
    package = ROOT / "src" / "albertine" / "released"
    small = {
        f"albertine/released/{name}/{path.name}" for name in (EN, ZH) for path in (package / name).iterdir()
    }
    assert names == small, "and no larger model"
    code = f"from albertine.core.released import released_folder as f; print(f('{EN}'))"
    found = output_in(tmp_path, installed, "-c", code)
    assert Path(found.strip()) == installed / "albertine" / "released" / EN
    text = "He played for the football [MASK]."
    assert "team" in output_in(tmp_path, installed, "-m", "albertine", "predict", "fill-mask", EN, text)
    tune = ("finetune", "name=films", f"encoder.folder={EN}", "task.dataset=sst-2", "task.folder=SST-2")
    assert "dataset: sst-2" in output_in(tmp_path, installed, "-m", "albertine", *tune, "--dry-run")
