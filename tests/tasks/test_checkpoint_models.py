"""Checkpoints of runs as encoders to tune, and checkpoints of tuned runs as models for inference."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import albertine
from albertine.errors import ModelError
from albertine.interop.heads import task_of
from albertine.interop.huggingface.folders import read_folder
from albertine.tasks.ensemble import ensemble
from albertine.tasks.finetune import finetune
from albertine.tasks.rescore import open_run
from albertine.training.progress import Reporter
from tests import stand_in
from tests.tasks.conftest import Tune
from tests.tasks.test_crf import entities
from tests.tasks.test_relate import stories

QUIET = Reporter(quiet=True)
KINDS: dict[str, dict[str, Any]] = {
    "whitened means, averaged": {"task": {"pooling": "depths"}, "training": {"epochs": 1, "ema": 0.9}},
    "compared": {"task": {"pair": "answer", "pooling": "compared"}, "training": {"epochs": 1}},
    "score": {"task": {"kind": "score", "label": "points"}, "training": {"epochs": 1}},
    "generation": {"task": {"kind": "generation", "target_length": 8}, "training": {"steps": 4}},
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", KINDS)
def test_the_last_checkpoint_answers_as_the_final_model(
    kind: str, tune: Tune, tables: dict[str, Path]
) -> None:
    run = finetune(tune(**KINDS[kind], encoder={"unshare": "all"}), reporter=QUIET).folder
    last = max((run / "checkpoints").glob("step-*"), key=lambda path: int(path.name.removeprefix("step-")))
    fields = {"text": "review", "pair": "answer" if kind == "compared" else None}

    def answers(folder: Path) -> list[Any]:
        predictor = albertine.Predictor(folder, precision="float32")
        if kind == "generation":
            return [predictor.generate("the old man")]
        return [row["prediction"] for row in predictor.predict(tables["dev"], **fields)]

    assert answers(last) == answers(run / "final")
    if kind != "generation":
        scores = albertine.evaluate(last)["dev"]
        assert scores == albertine.evaluate(run / "final")["dev"] and len(scores) > 1


OWN_HEADS: dict[str, dict[str, Any]] = {
    "single": {"label": "verdict"},
    "multi": {"kind": "multi", "label": "tags"},
    "score": {"kind": "score", "label": "points"},
    "crf": {"kind": "entities", "text": "text", "label": "found", "crf": True},
    "relations": {"kind": "relations", "text": "said", "label": "facts"},
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", OWN_HEADS)
def test_a_checkpoint_has_the_labels_of_a_head_that_transformers_lacks(
    kind: str, tune: Tune, pretrained: Path, tmp_path: Path
) -> None:
    """RoFormer's folders hold them apart from where transformers would read them."""
    tokenizer = albertine.load_tokenizer(pretrained)
    encoder = stand_in.rotary_model(tokenizer.vocab_size, seed=3, hidden_act="gelu")
    albertine.save(encoder, tokenizer, tmp_path / "encoder")
    task = OWN_HEADS[kind]
    if (make := {"crf": entities, "relations": stories}.get(kind)) is not None:
        task = task | {
            name: make(tmp_path / f"{name}.jsonl", 20, i) for i, name in enumerate(("train", "dev"))
        }
    settings = tune(
        task=task,
        encoder={"folder": tmp_path / "encoder", "unshare": "all"},
        training={"steps": 4},
        watching={"evaluations": 1},
    )
    run = finetune(settings, reporter=QUIET).folder
    config = json.loads((run / "final" / "config.json").read_text())
    assert config["model_type"] == "roformer" and "words" in config["albertine"]["own_head"]
    dev = settings.task.dev

    def answers(folder: Path) -> list[Any]:
        return list(
            albertine.Predictor(folder, precision="float32").predict(dev, text=task.get("text", "review"))
        )

    last = run / "checkpoints" / "step-4"
    assert answers(last) == answers(run / "final")
    assert albertine.evaluate(last)["dev"] == albertine.evaluate(run / "final")["dev"]


def test_vectors_and_thresholds_lie_beside_models_only(tune: Tune) -> None:
    task = {"kind": "similarity", "pair": "answer", "label": "points", "similarity": {"highest": 5}}
    run = finetune(tune(task=task, training={"steps": 3}), reporter=QUIET).folder
    step = run / "checkpoints" / "step-3"
    with pytest.raises(ModelError, match="of which only the encoder is read"):
        next(albertine.Predictor(step).predict([{"text": "a", "pair": "b"}]))
    with pytest.raises(ModelError, match=r"of which only the encoder is read.*Name best/ or final/"):
        albertine.load_task(step)
    again = finetune(tune(name="again", encoder={"folder": step}, training={"steps": 1}), reporter=QUIET)
    assert again.outcome.done
    found = read_folder(step)
    assert task_of(found) is None and not found.extra


def test_an_ensemble_over_pretraining_steps(tune: Tune, pretrained_run: Path) -> None:
    """The protocol of the ALBERT paper (4.9): members tuned from checkpoints of several steps."""
    runs = []
    for step in (2, 4):
        encoder = {"folder": pretrained_run / "checkpoints" / f"step-{step}"}
        settings = tune(name=f"from-{step}", encoder=encoder, training={"steps": 4})
        runs.append(open_run(finetune(settings, reporter=QUIET).folder))
    starts = [json.loads((run.folder / "result.json").read_text())["pretraining"] for run in runs]
    assert [start.partition(" of ")[0].rpartition(", ")[2] for start in starts] == ["step 2", "step 4"]
    together = ensemble(runs)
    assert [member.run.name for member in together.candidates] == ["from-2", "from-4"]
    assert set(together.scores) == {"dev"} and together.members == (0, 1)
    mid = [open_run(runs[0].folder / "checkpoints" / f"step-{step}") for step in (2, 4)]
    assert [run.name for run in mid] == ["from-2-step-2", "from-2-step-4"]
    assert len(ensemble(mid).members) == 2


@pytest.fixture(scope="module")
def pretrained_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four steps of pretraining, each second one kept."""
    from tests.toy import MODEL, toy_corpus

    folder = tmp_path_factory.mktemp("pretraining")
    return albertine.pretrain(
        name="run",
        output=folder,
        corpus=toy_corpus(folder),
        model={"preset": "albert-tiny-zh", "change": MODEL},
        objective={"max_length": 32},
        training={"steps": 4, "minutes": None, "batch_size": 4, "workers": 0, "learning_rate": 0.01},
        watching={"checkpoint_every": 2, "evaluate_sequences": 8, "tensorboard": False},
        reporter=QUIET,
    ).folder
