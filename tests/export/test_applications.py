"""`albertine export --to ray-serve` and `--to triton`: what is written, and what is refused before it is."""

from __future__ import annotations

import json
import runpy
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

import albertine as package
from albertine.errors import AlbertineError
from albertine.export import applications
from albertine.export.applications import name_of
from albertine.export.export_model import export
from albertine.serving import ray_serve
from albertine.tasks.predictor import Predictor
from tests.cli.conftest import Command, albertine  # noqa: F401
from tests.inference.exports import tuned
from tests.triton_stand_in import read_config


@pytest.fixture(autouse=True)
def with_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """Applications are written, and not started: whether Ray is installed here does not matter."""
    monkeypatch.setattr(applications, "find_spec", lambda name: object())


def files_in(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_a_folder_for_ray_serve(
    classifier: Path,
    tmp_path: Path,
    albertine: Command,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = tmp_path / "out"
    done = albertine("export", classifier, out, "--to", "ray-serve")
    assert done.code == 0 and "serve run config.yaml" in done.out
    assert {name for name in files_in(out) if not name.startswith("model/")} == {
        *("app.py", "config.yaml", "README.md", "export.json"),
    }
    assert Predictor(out / "model").fingerprint == Predictor(classifier).fingerprint
    called: list[Any] = []

    class Deployment:
        def bind(self) -> str:
            return "bound"

    def deployment(*given: Any) -> Deployment:
        called.extend(given)
        return Deployment()

    monkeypatch.setattr(ray_serve, "deployment", deployment)
    settings = ray_serve.ReplicaSettings()
    assert runpy.run_path(str(out / "app.py"))["app"](settings) == "bound"
    assert called == [out / "model", "classify", settings]


def test_the_configuration_of_ray_serve(classifier: Path, tmp_path: Path) -> None:
    """Its names are those of the deployment, its values the defaults of the code."""
    out = export(classifier, tmp_path / "out", ["ray-serve"]).folder
    config = yaml.safe_load((out / "config.yaml").read_text())
    assert config["http_options"]["host"] == "127.0.0.1"
    (application,) = config["applications"]
    assert (application["name"], application["import_path"]) == ("classify", "app:app")
    assert ray_serve.ReplicaSettings(**application["args"]) == ray_serve.ReplicaSettings()
    (deployed,) = application["deployments"]
    assert deployed["name"] == ray_serve.DEPLOYMENT and deployed["num_replicas"] == 2
    assert deployed["max_ongoing_requests"] == ray_serve.AT_ONCE
    assert deployed["graceful_shutdown_timeout_s"] == ray_serve.DRAINING


def test_a_repository_for_triton(classifier: Path, tmp_path: Path, albertine: Command) -> None:  # noqa: F811
    out = tmp_path / "out"
    done = albertine("export", classifier, out, "--to", "triton")
    assert done.code == 0 and "tritonserver --model-repository" in done.out
    own = {name for name in files_in(out) if "/1/model/" not in name}
    assert own == {"classify/config.pbtxt", "classify/1/model.py", "README.md", "export.json"}
    assert Predictor(out / "classify/1/model").fingerprint == Predictor(classifier).fingerprint
    config = read_config((out / "classify/config.pbtxt").read_text())
    outputs = {one["name"]: (one["data_type"], one["dims"]) for one in config["output"]}
    assert outputs == {"LABEL": ("TYPE_STRING", [3]), "SCORE": ("TYPE_FP32", [3])}
    assert config["name"] == "classify" and config["max_batch_size"] > 1


@pytest.mark.parametrize("to", ["ray-serve", "triton"])
def test_the_report_and_the_readme(
    to: str,
    classifier: Path,
    tmp_path: Path,
    albertine: Command,  # noqa: F811
) -> None:
    out = package.export(classifier, tmp_path / "out", to).folder
    report = json.loads((out / "export.json").read_text())
    assert (report["formats"], report["answers"], report["files"]) == ([to], "classify", {})
    assert len(report["source"]["digest"]) == 32
    readme = (out / "README.md").read_text()
    assert "$" not in readme and str(classifier) not in readme
    assert "albertine[ray-serve,torch]" in readme or "albertine[serve,torch]" in readme
    done = albertine("info", out)
    assert done.code == 0 and "classify" in done.out


def test_a_replaced_application(classifier: Path, tmp_path: Path) -> None:
    """Of another one nothing stays that would be started; other files do."""
    out = export(classifier, tmp_path / "out", ["ray-serve"]).folder
    (out / "notes.txt").write_text("mine")
    with pytest.raises(AlbertineError, match="--overwrite"):
        export(classifier, out, ["triton"])
    export(classifier, out, ["triton"], overwrite=True)
    assert {path.name for path in out.iterdir()} == {"classify", "README.md", "export.json", "notes.txt"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--to", "onnx"], "ray-serve and onnx: an application has a folder of its own"),
        (["--int8"], "--int8 belongs to onnx"),
        (["--head", "embed"], "--head embed does not belong to ray-serve. Use --head task, or leave it out"),
    ],
)
def test_options_that_do_not_fit(
    options: list[str],
    message: str,
    classifier: Path,
    tmp_path: Path,
    albertine: Command,  # noqa: F811
) -> None:
    done = albertine("export", classifier, tmp_path / "out", "--to", "ray-serve", *options)
    assert done.code == 2 and message in " ".join(done.err.split())
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_written(
    classifier: Path,
    tmp_path: Path,
    albertine: Command,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A folder of something else, none, a model without a vocabulary, no Ray: one message with a remedy each,
    and nothing is written."""
    bare, used = shutil.copytree(classifier, tmp_path / "bare"), tmp_path / "used"
    for name in ("vocab.txt", "tokenizer.json"):
        (bare / name).unlink(missing_ok=True)
    used.mkdir()
    (used / "mine.txt").write_text("mine")
    before, out = files_in(tmp_path), tmp_path / "out"
    for to in ("ray-serve", "triton"):
        for arguments, message in (
            ((classifier, used), "exists and is no export. Name a new folder"),
            (
                (classifier,),
                f"needs a folder. Name one to write: albertine export {classifier} OUT --to {to}",
            ),
            ((bare, out), "holds no tokenizer"),
        ):
            done = albertine("export", *arguments, "--to", to)
            assert done.code == 2 and message in " ".join(done.err.split()), done.err
    monkeypatch.setattr(applications, "find_spec", lambda name: None)
    done = albertine("export", classifier, out, "--to", "ray-serve")
    assert done.code == 2 and "pip install 'albertine[ray-serve]'" in done.err
    done = albertine("export", classifier, out, "--to", "ray_serve")
    assert done.code == 2 and "ray-serve, triton" in done.err
    assert files_in(tmp_path) == before


def test_a_folder_that_changes_is_refused(
    classifier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of a run that is writing its best model."""
    source, copy = shutil.copytree(classifier, tmp_path / "source"), applications.copy_model

    def copied(folder: Path, target: Path) -> None:
        weights = folder / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-4] + b"\1\2\3\4")
        copy(folder, target)

    monkeypatch.setattr(applications, "copy_model", copied)
    with pytest.raises(AlbertineError, match="changed while it was copied"):
        export(source, tmp_path / "out", ["triton"])
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "head", "answers"),
    [("fill-mask", "task", "fill-mask"), ("fill-mask", "embed", "embed"), ("embed", "task", "embed")],
)
def test_what_a_model_answers(name: str, head: str, answers: str, tmp_path: Path) -> None:
    source = tuned(name, tmp_path / "source")
    done = export(source, tmp_path / "out", ["triton"], head=head)
    assert done.report["answers"] == answers


def test_an_exported_graph_is_a_model_too(exported: Path, tmp_path: Path) -> None:
    out = export(exported, tmp_path / "out", ["ray-serve"]).folder
    assert Predictor(out / "model").fingerprint == Predictor(exported).fingerprint
    assert "albertine[ray-serve,onnx]" in (out / "README.md").read_text()


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("runs/reviews/", "reviews"),
        ("owner/model@main", "model-main"),
        ("情感", "model"),
        ("my model.v2", "my-model.v2"),
        ("a" * 80, "a" * 64),
    ],
)
def test_the_name_for_clients(given: str, name: str) -> None:
    assert name_of(given) == name
