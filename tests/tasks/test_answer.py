"""Answers from passages: real files, windows, the best span, training, transformers' head."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from albertine.errors import DataError, ModelError, SettingsError
from albertine.inference.predictor import Predictor
from albertine.inference.windows import LONGEST, best_answer, windows_of
from albertine.tasks.answer import encode
from albertine.tasks.data import read_data
from albertine.tasks.datasets.answer import squad_file
from albertine.tasks.finetune import finetune
from albertine.text.load import load_tokenizer
from albertine.text.tokenizer import Spans
from albertine.training.progress import Reporter
from tests.tasks.conftest import Tune

OFFICIAL = {
    "squad1.1/dev-v1.1.json.xz": 10570,
    "squad1.1/train_subset-v1.1.json.xz": 11877,
    "squadshifts/amazon_reviews_v1.0.json.xz": 9885,
    "squadshifts/reddit_v1.0.json.xz": 9803,
    "xquad/xquad.en.json.xz": 1190,
}


@pytest.mark.parametrize(("path", "count"), OFFICIAL.items(), ids=OFFICIAL)
def test_real_files_have_their_official_counts(shared_data: Path, path: str, count: int) -> None:
    found = list(squad_file(shared_data / path))
    assert len(found) == count
    stands = [q.passage[s : s + len(t)] == t for q in found for t, s in q.answers]
    assert sum(stands) / len(stands) > 0.999


@pytest.mark.parametrize("limit", [64, 384])
def test_targets_lead_back_to_the_answers(shared_data: Path, limit: int) -> None:
    tokenizer = load_tokenizer(shared_data / "tokenizers" / "albert-en-30k")
    questions = list(squad_file(shared_data / "squad1.1" / "dev-v1.1.json.xz"))[:300]
    data = encode(questions, tokenizer, limit)
    assert data.targets is not None and max(map(len, data.ids)) <= limit
    seen = whole = 0
    for asked, targets in zip(data.examples, data.targets, strict=True):
        text, begin = asked.example.answers[0]
        found = set()
        for window, (first, last) in zip(asked.windows, targets.tolist(), strict=True):
            if first:
                a, b = (window.first + place - window.offset for place in (first, last))
                found.add((asked.spans.starts[a], asked.spans.ends[b]))
        seen += bool(found)
        whole += (begin, begin + len(text)) in found
    assert seen >= 298  # every answer is in some window
    assert whole / seen > 0.95  # else a piece reaches beyond it


def test_windows_cover_a_passage_and_every_token_is_owned_once(tune: Tune) -> None:
    tokenizer = load_tokenizer(tune().encoder.folder)
    passage = Spans(list(range(10, 110)), list(range(100)), list(range(1, 101)))
    windows = windows_of(tokenizer, [7, 8], passage, 45, stride=15)
    assert [w.first for w in windows] == [0, 15, 30, 45, 60]
    assert all(w.ids[w.offset] == 10 + w.first and len(w.ids) <= 45 for w in windows)
    assert windows[-1].first + windows[-1].count == 100
    # A strong start counts only in the window that owns its token.
    for token, owner in ((20, 0), (50, 2), (99, 4)):
        for number, window in enumerate(windows):
            logits = [torch.zeros(len(w.ids), 2) for w in windows]
            place = token - window.first + window.offset
            if not window.first <= token < window.first + window.count:
                continue
            logits[number][place] = 9.0
            best = best_answer(windows, logits, passage)
            assert best is not None
            assert ((best.begin, best.end) == (token, token + 1)) == (number == owner), (token, number)


def test_a_span_is_forward_and_not_too_long(tune: Tune) -> None:
    tokenizer = load_tokenizer(tune().encoder.folder)
    passage = Spans(list(range(10, 70)), list(range(60)), list(range(1, 61)))
    (window,) = windows_of(tokenizer, [7], passage, 80)
    logits = torch.zeros(len(window.ids), 2)
    logits[window.offset + 40, 0] = 5.0
    logits[window.offset + 20, 1] = 5.0  # before the start
    logits[window.offset + 20, 0] = 3.0
    logits[window.offset + 20 + LONGEST, 1] = 6.0  # too far from 20, and after 40
    best = best_answer([window], [logits], passage)
    assert best is not None and (best.begin, best.end) == (40, 51)
    with pytest.raises(SettingsError, match="leave no room"):
        windows_of(tokenizer, [7] * 30, passage, 36)
    assert (
        best_answer(windows_of(tokenizer, [7], Spans([], [], []), 80), [torch.zeros(4, 2)], Spans([], [], []))
        is None
    )


def squad(path: Path, count: int, seed: int) -> Path:
    """The answer is always the word "good" or "never", wherever it stands."""
    rng = np.random.default_rng(seed)
    paragraphs = []
    for i in range(count):
        words = [str(w) for w in rng.choice(["the", "house", "and", "old", "man", "time"], 12)]
        right = str(rng.choice(["good", "never"]))
        words[int(rng.integers(12))] = right
        text = " ".join(words)
        answers = [{"text": right, "answer_start": text.index(right)}]
        paragraphs.append({"context": text, "qas": [{"id": str(i), "question": "what", "answers": answers}]})
    path.write_text(json.dumps({"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]}))
    return path


def test_a_run_learns_to_answer_and_transformers_agrees(tune: Tune, tmp_path: Path) -> None:
    from transformers import AutoModelForQuestionAnswering

    task = {
        "train": squad(tmp_path / "train.json", 200, 1),
        "dev": squad(tmp_path / "dev.json", 60, 2),
        "kind": "answers",
        "max_length": 24,
    }
    result = finetune(tune(task=task), reporter=Reporter(quiet=True))
    assert result.scores["squad_f1"] > 0.8 and result.scores["squad_exact"] > 0.8
    predictor = Predictor(result.folder / "best", precision="float32")
    passage = "the old man and the time good house"
    best = predictor.answer("what", passage)
    assert best is not None and passage[best.begin : best.end] == "good"
    theirs = AutoModelForQuestionAnswering.from_pretrained(result.folder / "best").eval()
    batch = predictor.tokenizer("what", passage, return_tensors="pt")
    with torch.no_grad():
        out = theirs(**batch)
        hidden = predictor.model(**batch).last_hidden_state[0]
    head = predictor.classifier
    wanted = torch.stack([out.start_logits[0], out.end_logits[0]], 1)
    torch.testing.assert_close(hidden @ head.weight.T + head.bias, wanted, atol=1e-5, rtol=1e-5)


def test_answers_that_are_not_in_the_passage(tune: Tune, tmp_path: Path) -> None:
    tree = json.loads(squad(tmp_path / "a.json", 3, 1).read_text())
    qas = [p["qas"][0] for p in tree["data"][0]["paragraphs"]]
    qas[0]["answers"][0]["answer_start"] = -1  # it is there, elsewhere
    qas[1]["answers"][0]["text"] = "absent"
    (tmp_path / "b.json").write_text(json.dumps(tree))
    first, second, _ = squad_file(tmp_path / "b.json")
    text, start = first.answers[0]
    assert first.passage[start : start + len(text)] == text
    assert second.answers == (("absent", -1),)
    settings = tune(task={"train": tmp_path / "b.json", "dev": tmp_path / "a.json", "kind": "answers"})
    data = read_data(settings.task, load_tokenizer(settings.encoder.folder))
    assert data.notes[0] == "train: 2 examples, 1 left out, their answer is not in the passage"
    (tmp_path / "c.json").write_text('{"data": [{"paragraphs": [{}]}]}')
    with pytest.raises(DataError, match="is not a file in SQuAD's format"):
        list(squad_file(tmp_path / "c.json"))


def test_a_classifier_does_not_answer(tune: Tune) -> None:
    folder = finetune(tune(training={"epochs": 0.1}), reporter=Reporter(quiet=True)).folder
    with pytest.raises(ModelError, match="was not tuned to answer"):
        Predictor(folder / "best").answer("what", "a text")
