"""A family of one's own: one file and one registration line serve every use of a model."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import albertine
from albertine.errors import DataError, ModelError, SettingsError
from albertine.interop.huggingface.folders import read_folder
from albertine.tasks import families
from albertine.tasks.families import FAMILIES, KINDS, checked, family_of, task_of_kind
from albertine.tasks.family import Fields
from albertine.tasks.finetune import finetune
from albertine.tasks.predict import predict_file
from albertine.tasks.settings import FinetuneSettings
from albertine.tokenizers.load import load_tokenizer
from albertine.training.progress import Reporter
from tests.cli.conftest import Command
from tests.cli.conftest import albertine as command
from tests.serving.served import client_of
from tests.tasks.conftest import Tune

__all__ = ["command"]

LENGTHS = '''
"""How long a text is in characters: a number for every text."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from pydantic import Field

from albertine.interop.heads import head_config
from albertine.objectives.losses import Part
from albertine.tasks.kind_settings import Registration, TaskChoice
from albertine.tasks.encoded import RowBuilder
from albertine.tasks.examples import Example
from albertine.tasks.family import OneLayer
from albertine.tasks.dataset_files import all_rows


@dataclass
class Lengths(OneLayer):
    unit: float
    max_length: int
    metrics: tuple[str, ...] = ("pearson",)
    labels: tuple[str, ...] = ()
    outputs: int = 1
    task: ClassVar[str] = "lengths"

    def example(self, row, fields):
        return Example(row.name, fields.first(row), None, None, row.where)

    def encode(self, examples, tokenizer):
        rows = RowBuilder(tokenizer, self.max_length)
        for ids in tokenizer.encode_batch([e.text for e in examples]):
            rows.add(ids, None)
            rows.end()
        known = all(e.label is not None for e in examples)
        targets = [torch.tensor([e.label / self.unit]) for e in examples] if known else None
        return rows.encoded(examples, targets)

    def loss(self, logits, batch):
        gap = logits[:, 0] - batch.targets
        return Part(gap.square().sum(), len(gap), (gap.abs() < 0.5).sum())

    def soft_loss(self, student, teacher, batch, temperature):
        gap = student[:, 0] - teacher[:, 0]
        return gap.square().sum(), (gap.abs() < 0.5).sum()

    def answers(self, logits, data):
        return (logits[:, 0] * self.unit).tolist()

    def config(self, model_type, dropout):
        config = head_config(model_type, self.task, dropout, max_length=self.max_length)
        config["albertine"]["unit"] = self.unit
        return config


class LengthsTask(TaskChoice):
    """The length of a text."""

    kind: Literal["lengths"]
    default_metrics = ("pearson",)
    unit: float = Field(1.0, gt=0, description="characters that are one")

    @staticmethod
    def read(dataset, folder, split):
        for row in all_rows(dataset, folder, split):
            text = row.text(dataset.columns.text)
            yield Example(row.name, text, None, float(len(text)), row.where)

    def family(self, splits, tokenizer, known):
        return Lengths(self.unit, self.max_length)


def of_folder(found):
    return Lengths(found.flags["unit"], found.length)


FAMILY = Registration("lengths", "measure texts", of_folder, (LengthsTask,))
'''


@pytest.fixture
def lengths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The family, known until the test is over."""
    (tmp_path / "measured_texts.py").write_text(LENGTHS)
    monkeypatch.syspath_prepend(tmp_path)
    for table in (FAMILIES, KINDS):
        for name, value in table.items():
            monkeypatch.setitem(table, name, value)
        monkeypatch.setitem(table, "lengths", None)  # taken away again afterwards
    families.register(importlib.import_module("measured_texts").FAMILY)
    yield
    sys.modules.pop("measured_texts")


TASK = {"kind": "lengths", "text": "review", "unit": 20.0}


@pytest.mark.usefixtures("lengths")
def test_it_is_trained_scored_and_predicts(
    tune: Tune, tables: dict[str, Path], tmp_path: Path, command: Command
) -> None:
    settings = tune(task={**TASK, "label": "label"}, training={"epochs": 2})
    done = finetune(settings, reporter=Reporter(quiet=True))
    assert done.scores["pearson"] > 0.5 and task_of_kind(settings.task) == "lengths"
    # Scored again, from the folder alone and by the command, it is what it was.
    assert albertine.evaluate(done.folder)["dev"]["pearson"] == done.scores["pearson"]
    printed = json.loads(command("evaluate", done.folder, "--dev", "--json").out)
    assert printed[0]["scores"] == {"pearson": done.scores["pearson"]}
    # It predicts what the run predicted, with the unit and length of its folder.
    predictor = albertine.Predictor(done.model, precision="float32")
    assert (predictor.family.unit, predictor.family.max_length) == (20.0, 32)
    lines = [json.loads(line) for line in (done.folder / "predictions-dev.jsonl").read_text().splitlines()]
    predictions = [row["prediction"] for row in predictor.predict(tables["dev"], text="review")]
    assert predictions == pytest.approx([line["prediction"] for line in lines], abs=1e-4)
    answered = predict_file(predictor, tables["dev"], tmp_path / "o.jsonl", fields=Fields("review"))
    rows = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]
    assert answered.rows == len(rows) == 100 and [row["prediction"] for row in rows] == predictions
    with pytest.raises(ModelError, match="was tuned to measure texts, and cannot tag entities"):
        predictor.tag("a man")


@pytest.fixture
def tuned(lengths: None, tune: Tune) -> Path:
    """The folder of a run of the family."""
    settings = tune(task={**TASK, "label": "label"}, training={"epochs": 1})
    return finetune(settings, reporter=Reporter(quiet=True)).folder


TEXTS = ["the old man", "he was never good"]


def test_it_is_served(tuned: Path) -> None:
    predictor = albertine.Predictor(tuned, precision="float32")
    predictions = [row["prediction"] for row in predictor.predict(TEXTS)]
    with client_of(tuned / "best") as client:
        found = client.post("/", json={"inputs": TEXTS}).json()
        assert [one["prediction"] for one in found] == pytest.approx(predictions, abs=1e-4)
        assert client.post("/", json={"inputs": TEXTS[0]}).json().keys() == found[0].keys()
        assert client.get("/info").json()["model_type"]["lengths"] == {}
        long = {"inputs": "the " * 100}
        assert client.post("/", json=long).json()["code"] == "input_too_long"
        cut = {"truncate": True, "truncation_direction": "left"}
        assert client.post("/", json={**long, "parameters": cut}).status_code == 200
        refused = client.post("/predict", json={"inputs": "a man"}).json()
        assert "it can measure texts" in refused["error"] and refused["details"]["wanted"] == "classify"
        assert b',task="lengths"}' in client.get("/metrics").content


def test_it_is_exported(tuned: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    exported = albertine.export(tuned, tmp_path / "exported")
    assert exported.report["answers"] == "lengths"
    source, graph = (
        albertine.Predictor(tuned, precision="float32"),
        albertine.Predictor(tmp_path / "exported"),
    )
    wanted = [row["prediction"] for row in source.predict(TEXTS)]
    assert [row["prediction"] for row in graph.predict(TEXTS)] == pytest.approx(wanted, abs=1e-3)


def test_it_is_distilled(tuned: Path, tune: Tune) -> None:
    task, training = {**TASK, "label": "label"}, {"epochs": 1, "teacher": tuned, "soft": 1.0}
    done = finetune(tune(name="student", task=task, training=training), reporter=Reporter(quiet=True))
    rows = [json.loads(line) for line in (done.folder / "metrics.jsonl").read_text().splitlines()]
    assert any("soft" in str(row) for row in rows) and done.scores["pearson"] > 0.3


def test_without_a_call_with_padded_batches_it_is_refused_there(tuned: Path) -> None:
    with pytest.raises(ModelError, match=r"was tuned to measure texts, which takes.*task\.kind=lengths"):
        albertine.load_task(tuned)


def test_it_has_a_card(tuned: Path) -> None:
    card = albertine.card(tuned).read_text()
    assert 'albertine.Predictor("path/to/this/folder").predict(["a text"])' in card
    assert "pearson" in card and "pipeline_tag" not in card


@pytest.mark.usefixtures("lengths")
def test_its_settings_are_its_own_and_a_yaml_file_may_be_of_its_kind(tune: Tune, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"`task.unit`: input should be greater than 0"):
        tune(task={**TASK, "unit": 0})
    with pytest.raises(SettingsError, match=r"task\.unit is for lengths, and this task is single"):
        tune(task={"unit": 20.0})
    with pytest.raises(SettingsError, match=r"task\.crf is for entities, and this task is lengths"):
        tune(task={**TASK, "crf": True})
    with pytest.raises(SettingsError, match=r"unknown setting `task\.unti`; did you mean `task\.unit`"):
        tune(task={**TASK, "unti": 1})
    file = tmp_path / "mine.yaml"
    file.write_text("kind: lengths\nfiles: {train: a.csv}\nmetrics: [pearson]\n")
    assert checked(file).kind == "lengths"
    file.write_text("kind: lengths\nfiles: {train: a.csv}\nmetrics: [accuracy]\n")
    with pytest.raises(SettingsError, match="`accuracy` is not of this kind; of lengths there are pearson"):
        checked(file)


def test_without_it_its_models_are_refused_by_name(tune: Tune, tmp_path: Path) -> None:
    settings: FinetuneSettings = tune(training={"steps": 1})
    done = finetune(settings, reporter=Reporter(quiet=True))
    config = json.loads((done.model / "config.json").read_text())
    config["albertine"]["task"] = "lengths"
    (done.model / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match="was tuned to `lengths`, which is unknown here"):
        family_of(read_folder(done.model), load_tokenizer(done.model), done.model)
    with pytest.raises(ModelError, match="was tuned to lengths, and cannot tag entities"):
        albertine.Predictor(done.model).tag("a man")
    with pytest.raises((ModelError, DataError)):
        list(albertine.Predictor(done.model).predict(["a man"]))
