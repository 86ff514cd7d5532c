"""Tuning with a head after every layer, and predictions with early exit."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import torch

import albertine
from albertine.cli.app import run
from albertine.errors import ModelError, SettingsError
from albertine.tasks.exit_curve import exit_curve
from albertine.tasks.finetune import finetune
from albertine.tasks.predictor import Predictor
from albertine.tasks.rescore import open_run
from tests.tasks.conftest import Tune

TEXTS = ["the good man was old", "he never said the time", "good", "the man of the house was never old"]
DEEP: dict[str, Any] = {"encoder": {"num_hidden_layers": 4}, "training": {"exits": True}}


@pytest.fixture(scope="module", params=["cls", "depths"])
def tuned(
    request: pytest.FixtureRequest,
    pretrained: Path,
    tables: dict[str, Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    from albertine.core.settings import resolve
    from albertine.tasks.settings import FinetuneSettings

    tree: dict[str, Any] = {
        "name": "exits",
        "output": tmp_path_factory.mktemp("exits"),
        "task": {**tables, "text": "review", "label": "verdict", "max_length": 32, "pooling": request.param},
        "encoder": {"folder": pretrained, "num_hidden_layers": 4},
        "training": {
            "exits": True,
            "precision": "float32",
            "epochs": 6,
            "batch_size": 16,
            "learning_rate": 0.003,
        },
        "watching": {"evaluations": 1, "tensorboard": False, "report": False},
    }
    result = finetune(resolve(FinetuneSettings, tree))
    assert result.scores["accuracy"] > 0.9
    return result.folder


def test_a_folder_has_the_heads_of_all_layers(tuned: Path) -> None:
    whole = Predictor(tuned)
    assert set(whole.tuned.head) == {
        f"{name}.{part}"
        for name in ("classifier", *(f"exits.{d}" for d in (1, 2, 3)))
        for part in ("weight", "bias")
    }
    early = Predictor(tuned, exit="confidence=0.8")
    answers = early.classify(TEXTS)
    assert [max(a, key=a.__getitem__) for a in answers] == ["fine", "poor", "fine", "poor"]
    assert sum(early.layers_used.values()) == len(TEXTS) and min(early.layers_used) < 4
    patient = Predictor(tuned, exit="confidence=1").classify(TEXTS)
    for own, all_layers in zip(patient, whole.classify(TEXTS), strict=True):
        assert own == pytest.approx(all_layers, abs=1e-5)
    assert not whole.layers_used
    assert early.fingerprint != whole.fingerprint


def test_the_loss_weighs_layers_by_their_number(tuned: Path) -> None:
    """Σ d·loss of layer d over Σ d, against logits of all layers."""
    predictor = Predictor(tuned)
    family, model = predictor.family, predictor.tuned
    examples = [
        next(iter(open_run(tuned).data.dev.some([i]).source_examples))  # type: ignore[union-attr]
        for i in range(6)
    ]
    batch = family.encode(examples, predictor.tokenizer).batch(range(6))
    part = family.part(model, batch)
    every = model.every_logits(batch.packed)  # type: ignore[union-attr,operator]
    losses = [torch.nn.functional.cross_entropy(x, batch.targets, reduction="sum") for x in every]
    right = sum(d * loss for d, loss in enumerate(losses, 1)) / 10
    torch.testing.assert_close(part.loss_sum, right)
    assert part.count == 6


def test_files_name_the_layers_of_every_row(
    tuned: Path, tables: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out.csv"
    words = ["--file", str(tables["dev"]), "--text", "review", "-o", str(output), "--exit", "patience=1"]
    assert run(["predict", "classify", str(tuned), *words]) == 0
    assert "of 4 layers" in capsys.readouterr().err
    with output.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {int(row["layers"]) for row in rows} <= {2, 3, 4}
    right = sum(row["prediction"] == row["verdict"] for row in rows) / len(rows)
    assert right > 0.9
    assert run(["predict", "classify", str(tuned), *TEXTS, "--exit", "patience=1"]) == 0
    assert "of 4 layers" in capsys.readouterr().err


def test_the_curve_has_a_point_for_every_rule(
    tuned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "exits.html"
    assert run(["analyze", "exits", str(tuned), "--json", "--html", str(page)]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    points = {point["rule"]: point for point in found["points"]}
    assert {"all layers", "patience=1", "patience=2", "confidence=0.9"} <= points.keys()
    assert points["all layers"]["layers"] == 4
    assert 2 <= points["patience=1"]["layers"] <= points["patience=2"]["layers"] <= 4
    assert all(sum(point["left"]) == found["examples"] == 100 for point in found["points"])
    assert points["patience=2"]["score"] > 0.9
    assert "patience=1" in page.read_text(encoding="utf-8")
    assert run(["analyze", "exits", str(tuned)]) == 0
    assert "--exit" in capsys.readouterr().out


def test_transformers_reads_the_last_head(tuned: Path) -> None:
    transformers = pytest.importorskip("transformers")
    predictor = Predictor(tuned, precision="float32")
    folder = predictor.path
    (named,) = json.loads((folder / "config.json").read_text(encoding="utf-8"))["architectures"]
    if predictor.family.pooling != "cls":  # type: ignore[attr-defined]
        assert named == "AlbertineForSequenceClassification"  # no class of transformers pools so
        return
    assert named == "AlbertForSequenceClassification"
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = albertine.load_tokenizer(folder)
    ids = torch.tensor([tokenizer.layout(tokenizer.encode(TEXTS[0]), None, max_length=32)[0]])
    with torch.no_grad():
        logits = theirs(ids).logits[0].tolist()
    ours = predictor.classify([TEXTS[0]], logits=True)[0]
    assert list(ours.values()) == pytest.approx(logits, abs=1e-4)


def test_tasks_and_models_without_exits_are_refused(tune: Tune, pretrained: Path) -> None:
    with pytest.raises(SettingsError, match="score has none"):
        finetune(tune(**DEEP, task={"kind": "score", "label": "points"}))
    with pytest.raises(SettingsError, match=r"training\.teacher"):
        finetune(tune(training={"exits": True, "teacher": pretrained}))
    plain = finetune(tune(training={"steps": 2})).model
    with pytest.raises(ModelError, match=r"training\.exits"):
        Predictor(plain, exit="patience=1")
    with pytest.raises(SettingsError, match="no rule"):
        Predictor(plain, exit="soon")
    with pytest.raises(ModelError, match=r"training\.exits"):
        exit_curve(open_run(plain))


def test_a_server_counts_texts_by_layers(tuned: Path) -> None:
    from starlette.testclient import TestClient

    from albertine.serving.app import application, paths
    from albertine.serving.limits import ServingLimits
    from albertine.serving.models import Models

    models = Models(
        ServingLimits(), paths(), lambda model: Predictor(model, precision="float32", exit="confidence=0.8")
    )
    models.add("exits", str(tuned))
    models.start()
    with TestClient(application(models), "http://localhost") as client:
        found = client.post("/predict", json={"inputs": [[text] for text in TEXTS]}).json()
        assert [one[0]["label"] for one in found] == ["fine", "poor", "fine", "poor"]
        lines = client.get("/metrics").text.splitlines()
    assert models.stop(10.0)
    counts = [float(line.split()[-1]) for line in lines if line.startswith("albertine_exit_layers{")]
    assert len(counts) == 4 and sum(counts) >= len(TEXTS)  # and those with which the model was tried


def test_a_training_loop_computes_layers_once(tuned: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`load_task` with labels. Catches: a second pass for the loss; logits of another pass."""
    task, tokenizer = albertine.load_task(tuned), albertine.load_tokenizer(Predictor(tuned).path)
    ids = torch.tensor([tokenizer.layout(tokenizer.encode(TEXTS[0]), None, max_length=32)[0]])
    passes, forward = list[int](), type(task.base.encoder).forward

    def counted(*given: Any, **how: Any) -> Any:
        passes.append(1)
        return forward(*given, **how)

    monkeypatch.setattr(type(task.base.encoder), "forward", counted)
    found = task(ids, labels=torch.tensor([0]))
    assert len(passes) == 1
    assert found.loss is not None and found.loss.requires_grad
    torch.testing.assert_close(found.logits, task(ids).logits)
