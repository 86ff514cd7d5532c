"""Entities by BIO and BIOES tags, with and without a conditional random field, the whole way."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from albertine.evaluation.entities import micro
from albertine.inference.tags import allowed, bio_spans, entities_of, marks, tags_of
from albertine.model.crf import Crf
from albertine.model.sharing import SharingPlan
from albertine.tasks.dataset_registry import named
from albertine.tasks.datasets.entities import read
from albertine.tasks.finetune import finetune
from albertine.tasks.initial_model import rates
from albertine.tasks.predictor import Predictor
from albertine.tasks.rescore import evaluate_run, open_run
from albertine.tasks.tag import tags_for
from albertine.tokenizers.base import Spans
from albertine.training.progress import Reporter
from tests.tasks.conftest import Tune

OFFICIAL = [
    ("wnut-17", "wnut17", {"train": 3394, "dev": 1009, "test": 1287}),
    ("cluener", "cluener2020", {"train": 10748, "dev": 1343}),
]


@pytest.mark.sample(1)
@pytest.mark.parametrize(("name", "folder", "counts"), OFFICIAL, ids=[row[0] for row in OFFICIAL])
@pytest.mark.parametrize("scheme", ["bio", "bioes"])
def test_tags_of_real_files_are_allowed_and_lead_back(
    shared_data: Path, name: str, folder: str, counts: dict[str, int], scheme: Any
) -> None:
    for split, count in counts.items():
        found = list(read(named(name), shared_data / folder, split))
        assert len(found) == count, split
    types = sorted({kind for e in found for kind, _, _ in e.label or ()})
    tags = tags_of(types, scheme)
    fits, number = allowed(tags), {tag: i for i, tag in enumerate(tags)}
    outside, gold, back = len(tags), [], []
    for example in found[:400]:
        places = range(len(example.text))  # a token a character
        spans = Spans([7] * len(places), list(places), [i + 1 for i in places])
        numbers = tags_for(spans, example.label or (), scheme)
        path = [outside, *(number[tag] for tag in numbers), outside]
        assert all(fits[a][b] for a, b in pairwise(path)), example.text
        half = len(places) // 2  # a text cut short still ends as the scheme wants it
        cut = tags_for(Spans(*(part[:half] for part in spans)), example.label or (), scheme)
        assert not cut or fits[number[cut[-1]]][outside]
        gold.append(example.label or ())
        back.append(entities_of(spans, numbers))
    assert micro(gold, back).f1 > 0.99  # a few overlap


def test_which_tag_may_follow_which() -> None:
    def pairs(tags: tuple[str, ...]) -> set[str]:
        names, table = (*tags, "."), allowed(tags)
        return {
            f"{a}>{b}"
            for a, row in zip(names, table, strict=True)
            for b, ok in zip(names, row, strict=True)
            if ok
        }

    bio = pairs(tags_of("x"))
    assert {"O", "B-x", "I-x"} == set(tags_of("x"))
    assert bio == {
        *(
            "O>O",
            "O>B-x",
            "O>.",
            "B-x>O",
            "B-x>B-x",
            "B-x>I-x",
            "B-x>.",
            "I-x>O",
            "I-x>B-x",
            "I-x>I-x",
            "I-x>.",
        ),
        *(".>O", ".>B-x", ".>."),
    }
    two = pairs(tags_of("xy", "bioes"))
    assert {p for p in two if p.startswith(("B-x>", "I-x>"))} == {"B-x>I-x", "B-x>E-x", "I-x>I-x", "I-x>E-x"}
    after = {"O", "B-x", "S-x", "B-y", "S-y", "."}
    for name in ("O", "E-x", "S-x", "E-y", "S-y", "."):
        assert {p.partition(">")[2] for p in two if p.startswith(f"{name}>")} == after
    assert [marks(n, "bioes") for n in (1, 2, 4)] == ["S", "BE", "BIIE"]
    assert bio_spans(["B-x", "E-x", "S-x", "O"]) == [("x", 0, 2), ("x", 2, 3)]


def entities(path: Path, count: int, seed: int) -> Path:
    """Things begin with "good", and the "man" and "house" that follow it belong to them."""
    rng = np.random.default_rng(seed)
    lines = []
    for i in range(count):
        words, spans = [], []
        while len(words) < 8:
            if rng.random() < 0.3:
                thing = ["good", *(str(w) for w in rng.choice(["man", "house"], int(rng.integers(0, 3))))]
                begin = len(" ".join(words)) + bool(words)
                words += thing
                spans.append(["thing", begin, begin + len(" ".join(thing))])
                words.append("and")
            else:
                words.append(str(rng.choice(["the", "old", "time", "he"])))
        lines.append({"text": " ".join(words), "found": spans, "id": str(i)})
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return path


@pytest.fixture
def task(tmp_path: Path) -> dict[str, Any]:
    files = {"train": entities(tmp_path / "a.jsonl", 300, 1), "dev": entities(tmp_path / "b.jsonl", 60, 2)}
    return {**files, "text": "text", "label": "found", "kind": "entities"}


@pytest.mark.sample(1)
@pytest.mark.parametrize("scheme", ["bio", "bioes"])
def test_a_run_with_a_crf_learns_and_transformers_refuses_its_tags(
    tune: Tune, task: dict[str, Any], scheme: str, caplog: pytest.LogCaptureFixture
) -> None:
    from transformers import AutoModelForTokenClassification

    settings = tune(task={**task, "tags": scheme, "crf": True}, training={"epochs": 3, "crf_rate": 10})
    result = finetune(settings, reporter=Reporter(quiet=True))
    assert result.scores["entity_f1"] > 0.9
    lines = [json.loads(x) for x in (result.folder / "predictions-dev.jsonl").read_text().splitlines()]
    predictions = [[tuple(e[:3]) for e in line["prediction"]] for line in lines]
    gold = [[tuple(e[:3]) for e in line["label"]] for line in lines]
    assert micro(gold, predictions).f1 == pytest.approx(result.scores["entity_f1"])
    predictor = Predictor(result.folder / "best", precision="float32")
    assert [
        predictor.tag(line["text"]) for line in lines
    ] == predictions  # the CRF is in the folder, and used
    with pytest.raises(RuntimeError):  # whose class would leave the CRF out
        AutoModelForTokenClassification.from_pretrained(result.folder / "best")


def test_the_crf_decides_where_the_logits_would_not() -> None:
    tags = tags_of(["x"], "bioes")
    logits = torch.zeros(3, len(tags))
    logits[0, tags.index("B-x")] = logits[1, tags.index("O")] = logits[2, tags.index("E-x")] = 2.0
    logits[1, tags.index("I-x")] = 1.5
    assert [tags[i] for i in logits.argmax(-1).tolist()] == ["B-x", "O", "E-x"]
    crf = Crf(allowed(tags))
    crf.load_state_dict({"transitions": torch.zeros(5, 5), "start": torch.zeros(5), "end": torch.zeros(5)})
    assert [tags[i] for i in crf.best(logits, [3]).tolist()] == ["B-x", "I-x", "E-x"]


@pytest.mark.parametrize("crf", [True, False])
def test_texts_longer_than_a_row_are_learned_and_tagged_whole(
    tune: Tune, task: dict[str, Any], tmp_path: Path, crf: bool
) -> None:
    """Catches: entities behind the first row that are never learned, never predicted, or left out of the
    score."""
    rows = [json.loads(x) for x in (tmp_path / "b.jsonl").read_text().splitlines()]
    (tmp_path / "b.jsonl").write_text("")
    with (tmp_path / "b.jsonl").open("a") as file:
        for i in range(0, 60, 6):
            text, found = "", []
            for row in rows[i : i + 6]:
                found += [[kind, a + len(text), b + len(text)] for kind, a, b in row["found"]]
                text += row["text"] + " "
            file.write(json.dumps({"id": str(i), "text": text, "found": found}) + "\n")
    settings = tune(task={**task, "crf": crf, "max_length": 8}, training={"epochs": 3, "crf_rate": 10})
    result = finetune(settings, reporter=Reporter(quiet=True))
    assert result.scores["entity_f1"] > 0.9
    assert "10 longer than 8 tokens, read in windows that overlap" in result.notes[1]
    assert "cut to" not in "".join(result.notes)
    (best,) = evaluate_run(open_run(result.folder), ["dev"])
    assert best.scores["entity_f1"] == pytest.approx(result.scores["entity_f1"])
    predictor = Predictor(result.folder / "best", precision="float32")
    last = predictor.tag(text)[-1]
    assert last[1] > len(text) / 2 and predictor.cut == 0


def test_bioes_without_a_crf(tune: Tune, task: dict[str, Any]) -> None:
    settings = tune(task={**task, "tags": "bioes"}, training={"epochs": 3})
    result = finetune(settings, reporter=Reporter(quiet=True))
    assert result.scores["entity_f1"] > 0.3  # a token alone does not know where its entity ends
    lines = [json.loads(x) for x in (result.folder / "predictions-dev.jsonl").read_text().splitlines()]
    predictor = Predictor(result.folder / "best", precision="float32")
    for line in lines[:20]:
        assert predictor.tag(line["text"]) == [tuple(e[:3]) for e in line["prediction"]]


@pytest.mark.matrix
@pytest.mark.parametrize(("scheme", "crf"), [("bioes", True), ("bio", False)])
def test_real_files_go_the_whole_way(tune: Tune, shared_data: Path, scheme: str, crf: bool) -> None:
    task = {"train": None, "dev": None, "text": "text", "label": "label", "dataset": "wnut-17"}
    settings = tune(
        task={**task, "folder": shared_data / "wnut17", "max_length": 32, "tags": scheme, "crf": crf},
        training={"steps": 3, "micro_batch_tokens": 4096, "ema": 0.9},
        watching={"evaluations": 1},
    )
    result = finetune(settings, reporter=Reporter(quiet=True))
    assert 0 <= result.scores["entity_f1"] < 0.5 and result.test.keys() == {"entity_f1"}
    assert (result.folder / "predictions-test.jsonl").read_text(encoding="utf-8").count("\n") == 1287


def test_the_rate_of_the_crf_is_its_own(tune: Tune) -> None:
    rate = rates(SharingPlan.shared(2), 0.5, 1000.0)
    assert rate("crf.transitions") == rate("crf.start") == 1000
    assert rate("classifier.weight") == 1
