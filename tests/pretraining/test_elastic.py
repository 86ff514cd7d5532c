"""Elastic depth: drawn numbers of loops, a teacher of more loops, and what is refused."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from albertine.cli.app import run as command
from albertine.core.settings import dump
from albertine.corpus.reader import Corpus
from albertine.errors import SettingsError
from albertine.interop.huggingface.folders import load_model
from albertine.model.resharing import with_layers
from albertine.objectives.elastic import elastic_losses
from albertine.objectives.losses import pretraining_losses
from albertine.pretraining.data import PretrainingBatches, held_out_batches
from albertine.pretraining.held_out import score_batches
from albertine.pretraining.initial_model import initial_model
from albertine.pretraining.run import pretrain
from albertine.pretraining.settings import PretrainingSettings
from albertine.training.metrics import read_metrics
from albertine.training.progress import Reporter
from tests.pretraining.conftest import Build
from tests.toy import MODEL

PLAN = {"prelude": 1, "core": 1, "loops": 3, "coda": 1}
CHANGE = {name: value for name, value in MODEL.items() if name != "num_hidden_layers"}
ELASTIC = {"least": 1, "most": 3}


def elastic(build: Build, settings: dict[str, Any] | None = None, **more: Any) -> PretrainingSettings:
    """A toy run over a repeated core with its own norms."""
    model = {"preset": "albert-tiny-zh", "change": CHANGE, "sharing": PLAN, "own": ["norms"]}
    objective = {"max_length": 32, "elastic": ELASTIC if settings is None else settings}
    return build(**({"model": model, "objective": objective} | more))


def run(settings: PretrainingSettings) -> Path:
    result = pretrain(settings, reporter=Reporter(quiet=True))
    assert result.outcome.done
    return result.folder


def drawn(settings: PretrainingSettings, count: int, rank: int = 0, world: int = 1) -> list[set[int | None]]:
    """The loops of the micro-batches of every step."""
    batches = iter(PretrainingBatches(Corpus(settings.corpus), settings, None, rank, world))
    return [{batch.loops for batch in next(batches)[1]} for _ in range(count)]  # type: ignore[attr-defined]


def test_every_step_draws_one_number_of_loops_for_all_ranks(build: Build) -> None:
    settings = elastic(build)
    found = drawn(settings, 60)
    assert all(len(step) == 1 for step in found)
    numbers = [next(iter(step)) for step in found]
    assert {n: numbers.count(n) >= 10 for n in (1, 2, 3)} == {1: True, 2: True, 3: True}
    assert drawn(settings, 20, 0, 2) == drawn(settings, 20, 1, 2) == found[:20]
    other = settings.model_copy(update={"seed": 2})
    assert drawn(other, 20) != found[:20]


def test_a_teacher_has_more_loops_than_are_drawn(build: Build) -> None:
    settings = elastic(build, {**ELASTIC, "teacher": True})
    batches = iter(PretrainingBatches(Corpus(settings.corpus), settings, None))
    steps = [next(batches)[1] for _ in range(30)]
    assert {(b.loops, b.teacher_loops) for step in steps for b in step} == {(1, 3), (2, 3)}  # type: ignore[attr-defined]


def test_the_loss_is_that_of_the_model_with_the_drawn_loops(build: Build, corpus: Path) -> None:
    model = initial_model(elastic(build), torch.ones(500, dtype=torch.int64).numpy()).eval()
    batch = held_out_batches(corpus, build().objective, sequences=20)[0]
    for loops in (1, 2, 3):
        mine = pretraining_losses(model, replace(batch, loops=loops))
        other = pretraining_losses(with_layers(model, 2 + loops), batch)
        for name in ("mlm", "sentence"):
            torch.testing.assert_close(mine[name].loss_sum, other[name].loss_sum)


@pytest.mark.parametrize("coda", [0, 1])
def test_fewer_loops_learn_the_predictions_of_more(build: Build, corpus: Path, coda: int) -> None:
    """Loss and gradients of the one pass against two separate passes and the formula of the divergence."""
    model = {"preset": "albert-tiny-zh", "change": CHANGE, "sharing": {**PLAN, "coda": coda}}
    settings = elastic(build, model={**model, "own": ["norms"]})
    trained = initial_model(settings, torch.ones(500, dtype=torch.int64).numpy()).eval()
    with torch.no_grad():
        for parameter in trained.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3)))
    batch = held_out_batches(corpus, build().objective, sequences=20)[0]
    batch = replace(batch, loops=1, teacher_loops=3)
    rows = batch.packed, batch.mlm_positions
    assert batch.sentence_labels is not None

    def gradients(losses: list[torch.Tensor]) -> dict[str, torch.Tensor]:
        trained.zero_grad()
        torch.stack(losses).sum().backward()  # type: ignore[no-untyped-call]
        return {n: p.grad.clone() for n, p in trained.named_parameters() if p.grad is not None}

    parts = elastic_losses(trained, batch)
    assert {name: part.count for name, part in parts.items()} == batch.counts
    mine = gradients([part.loss_sum for part in parts.values()])

    deep, shallow = (trained.pretraining_forward(*rows, loops=loops) for loops in (3, 1))
    expected = {
        "mlm": F.cross_entropy(deep[0], batch.mlm_labels, reduction="sum"),
        "sentence": F.cross_entropy(deep[1], batch.sentence_labels, reduction="sum", ignore_index=-100),
    }
    for name, teacher, student in zip(expected, deep, shallow, strict=True):
        p, q = teacher.detach().softmax(-1), student.softmax(-1)  # type: ignore[union-attr]
        found = (p * (p.log() - q.log())).sum(-1)
        chosen = batch.sentence_labels >= 0 if name == "sentence" else torch.ones(len(p), dtype=torch.bool)
        expected = expected | {f"elastic_{name}": found[chosen].sum()}
        same = (p.argmax(-1) == q.argmax(-1))[chosen].sum()
        assert int(parts[f"elastic_{name}"].correct) == int(same)
    for name, value in expected.items():
        torch.testing.assert_close(parts[name].loss_sum, value, rtol=1e-4, atol=1e-4)
    assert parts["elastic_mlm"].loss_sum.item() > 1e-4
    theirs = gradients(list(expected.values()))
    assert mine.keys() == theirs.keys()
    for name in mine:
        torch.testing.assert_close(mine[name], theirs[name], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("teacher", [False, True])
def test_a_run_records_its_loops_and_an_interrupted_one_ends_the_same(
    build: Build, corpus: Path, teacher: bool
) -> None:
    settings = elastic(build, {**ELASTIC, "teacher": teacher})
    folder = run(settings)
    final = folder / "final" / "model.safetensors"
    whole = final.read_bytes()
    assert json.loads((folder / "final" / "config.json").read_text())["albertine"]["elastic"] == [1, 3]
    rows = read_metrics(folder / "metrics.jsonl")
    judged = [row["evaluation"] for row in rows if "evaluation" in row]
    model, batches = load_model(folder / "final"), held_out_batches(corpus, settings.objective, sequences=8)
    assert judged[-1]["mask_loss"] == pytest.approx(score_batches(model, batches)["mask_loss"], rel=1e-5)
    least = score_batches(with_layers(model, 3), batches)["mask_loss"]
    assert judged[-1]["least_mask_loss"] == pytest.approx(least, rel=1e-5)
    assert abs(least - judged[-1]["mask_loss"]) > 1e-4
    line = next(row for row in rows if "evaluation" not in row)
    names = ("mlm", "sentence", *(("elastic_mlm", "elastic_sentence") if teacher else ()))
    assert line["loss"] == pytest.approx(sum(line[f"{name}_loss"] for name in names))
    assert ("elastic_mlm_agreement" in line) == teacher
    shutil.rmtree(folder / "final")
    for step in ("step-6", "step-8"):
        shutil.rmtree(folder / "checkpoints" / step)
    result = pretrain(settings, reporter=Reporter(quiet=True))
    assert result.outcome.updates == 5  # after step 3
    assert final.read_bytes() == whole


def test_recomputed_layers_give_the_same_model(build: Build) -> None:
    both = []
    for name, recompute in (("kept", False), ("again", True)):
        training = {"steps": 3, "recompute": recompute}
        settings = elastic(build, {**ELASTIC, "teacher": True}, name=name, training=training)
        both.append((run(settings) / "final" / "model.safetensors").read_bytes())
    assert both[0] == both[1]


def test_info_says_for_which_layers_a_model_was_trained(
    build: Build, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run(elastic(build, training={"steps": 2}))
    capsys.readouterr()
    assert command(["info", str(folder / "final")]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "a core of one block used 3 times, 1 of their own before and 1 of their own after" in out
    assert "Trained with 1 to 3 loops of its core, drawn for every step: 3 to 5 layers" in out
    assert command(["info", str(folder / "checkpoints" / "step-2"), "--json"]) == 0
    capsys.readouterr()
    assert command(["info", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["elastic"] == {"loops": [1, 3], "layers": [3, 5]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"elastic": {"least": 1, "most": 4}}, "most is 4, and the plan has 3 loops"),
        ({"elastic": {"least": 3, "most": 2}}, "least is 3 and most 2"),
        ({"elastic": {"least": 2, "most": 2, "teacher": True}}, "teacher needs fewer loops"),
        ({"elastic": {"least": 0, "most": 2}}, "least"),
        ({"sharing": "none"}, "objective.elastic: this plan repeats no core"),
        ({"sharing": 2}, "objective.elastic: this plan repeats no core"),
        ({"sharing": "all", "halting": "basic"}, "halts or solves"),
        ({"stages": [{"begin": 0, "depth": 2}, {"begin": 0.5}]}, "has a depth, and objective.elastic"),
        ({"kind": "causal", "pairs": "none"}, "not supported with streamed text"),
        ({"distillation": {"teacher": "nowhere"}}, "not supported with distillation"),
    ],
)
def test_what_cannot_be_elastic_is_refused(build: Build, changes: dict[str, Any], message: str) -> None:
    depth = {"num_hidden_layers": 4} if "sharing" in changes else {}
    halting = {"halting": changes.pop("halting")} if "halting" in changes else {}
    model = {"preset": "albert-tiny-zh", "change": CHANGE | depth | halting}
    model["sharing"] = changes.pop("sharing", PLAN)
    stages = {"stages": changes.pop("stages")} if "stages" in changes else {}
    with pytest.raises(SettingsError, match=message):
        settings = build(model=model, objective={"elastic": {"most": 2}} | changes, **stages)
        pretrain(settings, reporter=Reporter(quiet=True))


def test_a_run_without_it_has_no_trace_of_it(build: Build) -> None:
    assert "elastic" not in dump(build())
