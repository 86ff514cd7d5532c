"""Answers from passages: real files, targets, training, transformers' head, files of the wrong kind."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from albertine.core.settings import read_yaml
from albertine.errors import DataError, ModelError, SettingsError
from albertine.evaluation.metrics import score
from albertine.inference.spans import LikelySpans
from albertine.inference.windows import WindowSettings
from albertine.tasks.answer import Answer, Question, encode
from albertine.tasks.answerability import AnswerOrNot
from albertine.tasks.dataset_registry import known, named
from albertine.tasks.datasets.answer import read, squad_file
from albertine.tasks.encoded import Encoded
from albertine.tasks.finetune import finetune
from albertine.tasks.predictor import Predictor
from albertine.tasks.settings import FinetuneSettings
from albertine.tasks.task_data import read_data
from albertine.tokenizers.load import load_tokenizer
from albertine.training.progress import Reporter
from tests.cli.conftest import Command
from tests.tasks.conftest import Tune


@pytest.fixture
def albertine(capsys: pytest.CaptureFixture[str]) -> Iterator[Command]:
    before = signal.getsignal(signal.SIGTERM)
    yield Command(capsys)
    signal.signal(signal.SIGTERM, before)


OFFICIAL = {  # questions, and how many have no answer that is in the passage
    "squad1.1/dev-v1.1.json.xz": (10570, 0),
    "squad1.1/train_subset-v1.1.json.xz": (11877, 0),
    "squad2.0_cs224n/dev-v2.0.json.xz": (6078, 3168),
    "squadshifts/amazon_reviews_v1.0.json.xz": (9885, 0),
    "squadshifts/reddit_v1.0.json.xz": (9803, 0),
    "xquad/xquad.en.json.xz": (1190, 0),
    "xquad/xquad.zh.json.xz": (1190, 0),
    "cmrc2018/train.json.xz": (10142, 0),
    "cmrc2018/dev.json.xz": (3219, 0),
    "cmrc2018/trial.json.xz": (1002, 0),
    "drcd/DRCD_dev.json.xz": (3524, 0),
    "dureader_robust/dev.json.xz": (1417, 0),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize(("path", "counts"), OFFICIAL.items(), ids=OFFICIAL)
def test_real_files_have_their_official_counts(shared_data: Path, path: str, counts: tuple[int, int]) -> None:
    found = list(squad_file(shared_data / path))
    assert len(found) == counts[0] and len({q.name for q in found}) == len(found)
    for q in found:
        assert q.answers is not None
        for text, start in q.answers:
            assert start == -1 or q.passage[start : start + len(text)] == text
    placed = sum(bool(q.answers) and q.answers[0][1] >= 0 for q in found)
    assert len(found) - placed == counts[1]


def test_answers_of_cmrc_with_wrong_positions(shared_data: Path) -> None:
    """193 of dev are not in their passage, and only count in scores; 7, and 21 of train, are at other
    positions."""
    for split, absent in (("dev", 193), ("train", 0), ("trial", 0)):
        found = list(squad_file(shared_data / "cmrc2018" / f"{split}.json.xz"))
        assert sum(start < 0 for q in found for _, start in q.answers or ()) == absent
        assert all(q.answers and q.answers[0][1] >= 0 for q in found)  # another answer is there


def test_known_sets_name_their_files_and_scores(shared_data: Path) -> None:
    for name, folder, split, count in (
        ("squad2", "squad2.0_cs224n", "dev", 6078),
        ("squadshifts-reddit", "squadshifts", "test", 9803),
        ("xquad-zh", "xquad", "test", 1190),
        ("cmrc2018", "cmrc2018", "test", 1002),
        ("drcd", "drcd", "dev", 3524),
        ("dureader-robust", "dureader_robust", "dev", 1417),
    ):
        assert sum(1 for _ in read(named(name), shared_data / folder, split)) == count, name
    sets = {name: found for name in known() if (found := named(name)).kind == "answers"}
    rules = {name: found.rules for name, found in sets.items()}
    assert rules["cmrc2018"] == rules["drcd"] == "cmrc" and rules["xquad"] == rules["squad2"] == "squad"
    assert [name for name, found in sets.items() if found.no_answer] == ["squad2"]


@pytest.mark.parametrize(
    ("path", "vocabulary", "limit", "exact"),
    [
        ("squad1.1/dev-v1.1.json.xz", "albert-en-30k", 64, 0.95),
        ("squad1.1/dev-v1.1.json.xz", "albert-en-30k", 384, 0.95),
        ("cmrc2018/trial.json.xz", "bert-zh-21128", 256, 0.97),
    ],
)
def test_targets_lead_back_to_the_answers(
    shared_data: Path, limit: int, path: str, vocabulary: str, exact: float
) -> None:
    tokenizer = load_tokenizer(shared_data / "tokenizers" / vocabulary)
    questions = [q for q in squad_file(shared_data / path) if q.answers and q.answers[0][1] >= 0][:300]
    data = encode(questions, tokenizer, WindowSettings(limit, stride=64))
    assert data.targets is not None and max(map(len, data.ids)) <= limit
    seen = whole = 0
    for example, targets in zip(data.examples, data.targets, strict=True):
        text, begin = example.example.answers[0]
        found = set()
        for window, (first, last) in zip(example.windows, targets.tolist(), strict=True):
            if first:
                a, b = (window.first + place - window.offset for place in (first, last))
                found.add((int(example.passage.starts[a]), int(example.passage.ends[b])))
        assert all(a < begin + len(text) and b > begin for a, b in found)
        seen += bool(found)
        whole += (begin, begin + len(text)) in found
    assert seen / len(questions) > 0.99  # a very long answer may fit in no window
    assert whole / seen > exact  # else a piece reaches beyond it, or white space stands around it


def squad(path: Path, count: int, seed: int, *, without: float = 0.0, **more: Any) -> Path:
    """The answer is always the word "good" or "never", at any position; in a share of the passages neither
    is there, and the question has no answer."""
    rng = np.random.default_rng(seed)
    paragraphs = []
    for i in range(count):
        words = [str(w) for w in rng.choice(["the", "house", "and", "old", "man", "time"], 12)]
        entry: dict[str, Any] = {"id": f"{seed}-{i}", "question": "what", "answers": []} | more
        if rng.random() < without:
            entry |= {"is_impossible": True, "plausible_answers": [{"text": "the", "answer_start": 0}]}
        else:
            right = str(rng.choice(["good", "never"]))
            words[int(rng.integers(12))] = right
            entry["answers"] = [{"text": right, "answer_start": " ".join(words).index(right)}]
        paragraphs.append({"context": " ".join(words), "qas": [entry]})
    path.write_text(json.dumps({"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]}))
    return path


def changed(path: Path, change: Callable[[list[dict[str, Any]]], None]) -> Path:
    """A file with its questions changed."""
    tree = json.loads(path.read_text())
    change([paragraph["qas"][0] for paragraph in tree["data"][0]["paragraphs"]])
    path.write_text(json.dumps(tree))
    return path


def task(folder: Path, **more: Any) -> dict[str, Any]:
    without = 0.4 if more.get("answer", {}).get("no_answer") else 0.0
    return {
        "train": squad(folder / "train.json", 200, 1, without=without),
        "dev": squad(folder / "dev.json", 60, 2, without=without),
        "kind": "answers",
        "max_length": 24,
        **more,
    }


def run(settings: FinetuneSettings) -> Any:
    return finetune(settings, reporter=Reporter(quiet=True))


def test_a_run_learns_to_answer_and_transformers_agrees(tune: Tune, tmp_path: Path) -> None:
    from transformers import AutoModelForQuestionAnswering

    result = run(tune(task=task(tmp_path)))
    assert result.scores["squad_f1"] > 0.8 and result.scores["squad_exact"] > 0.8
    predictor = Predictor(result.folder / "best", precision="float32")
    passage = "the old man and the time good house"
    best = predictor.answer("what", passage)
    assert best is not None and passage[best.begin : best.end] == "good"
    found = predictor.likely_spans([("what", passage)])[0]
    assert found.no_answer is None and sum(found.spans.values()) == pytest.approx(1)
    assert predictor.family.reading == WindowSettings(24)  # as in training
    lines = [json.loads(line) for line in (result.folder / "predictions-dev.jsonl").read_text().splitlines()]
    right = sum(line["prediction"] in line["label"] for line in lines) / len(lines)
    assert right == pytest.approx(result.scores["squad_exact"])
    assert all(sum(p for _, _, p in line["spans"]) == pytest.approx(1, abs=1e-4) for line in lines)
    theirs = AutoModelForQuestionAnswering.from_pretrained(result.folder / "best").eval()
    batch = predictor.tokenizer("what", passage, return_tensors="pt")
    with torch.no_grad():
        out = theirs(**batch)
        hidden = predictor.model(**batch).last_hidden_state[0]
    head = predictor.tuned.head
    wanted = torch.stack([out.start_logits[0], out.end_logits[0]], 1)
    torch.testing.assert_close(
        hidden @ head["qa_outputs.weight"].T + head["qa_outputs.bias"], wanted, atol=1e-5, rtol=1e-5
    )


def test_a_run_learns_that_there_is_no_answer(tune: Tune, tmp_path: Path, albertine: Command) -> None:
    from transformers import AutoModel

    settings = task(tmp_path, answer={"no_answer": True}, test=squad(tmp_path / "t.json", 40, 3, without=0.5))
    result = run(tune(task=settings, training={"epochs": 10}))
    scores = result.scores
    assert scores["squad2_best_f1"] > 0.8 and scores["squad2_best_exact"] > 0.8
    # What the threshold gives is what the search promised, on the very set it was searched on.
    assert scores["squad2_f1"] == pytest.approx(scores["squad2_best_f1"], abs=0.02)
    assert result.test["squad2_f1"] > 0.7
    config = json.loads((result.folder / "best" / "config.json").read_text())
    assert config["albertine"]["task"] == "answer" and 0 <= config["albertine"]["threshold"] < 1
    assert config["architectures"] == [
        "AlbertineForQuestionAnswering"
    ]  # transformers has no such head for ALBERT
    lines = [json.loads(line) for line in (result.folder / "predictions-dev.jsonl").read_text().splitlines()]
    threshold = config["albertine"]["threshold"]
    assert all((line["prediction"] == "") == (line["no_answer"] > threshold) for line in lines)
    assert {bool(line["label"]) for line in lines} == {True, False}

    predictor = Predictor(result.folder / "best", precision="float32")
    passage, other = "the old man and the time good house", "the old man and the time and the house the old"
    best = predictor.answer("what", passage)
    assert best is not None and passage[best.begin : best.end] == "good"
    assert predictor.answer("what", other) is None
    found = predictor.likely_spans([("what", other)])[0]
    assert found.no_answer is not None and found.no_answer > threshold and found.spans
    theirs = AutoModel.from_pretrained(result.folder / "best").eval()
    batch = predictor.tokenizer("what", passage, return_tensors="pt")
    with torch.no_grad():
        hidden = theirs(**batch).last_hidden_state
        torch.testing.assert_close(predictor.model(**batch).last_hidden_state, hidden, atol=1e-5, rtol=1e-5)

    outcome = albertine("predict", "answer", result.folder / "best", "what", other)
    assert (outcome.code, outcome.out) == (0, "\n")
    tree = json.loads(albertine("predict", "answer", result.folder / "best", "what", other, "--json").out)
    assert tree.keys() == {"answer", "no_answer"} and tree["answer"] == ""
    tree = json.loads(albertine("predict", "answer", result.folder / "best", "what", passage, "--json").out)
    assert tree["answer"] == "good" and passage[tree["begin"] : tree["end"]] == "good"
    assert 0 < tree["probability"] <= 1 and tree["no_answer"] <= threshold


def test_the_rules_of_scoring_hold_where_there_may_be_no_answer(tune: Tune, tmp_path: Path) -> None:
    """For the scores, which pick the model, and for the threshold: CMRC's do without 《》."""
    passages = [{"context": "《good》 man", "qas": []}, {"context": "the old man", "qas": []}] * 2
    questions = [
        {"id": str(i), "question": "what", "answers": [] if i % 2 else [{"text": "good", "answer_start": 1}]}
        for i in range(4)
    ]
    tree = [
        {**one, "qas": [{**q, "is_impossible": not q["answers"]}]}
        for one, q in zip(passages, questions, strict=True)
    ]
    (path := tmp_path / "a.json").write_text(json.dumps({"data": [{"paragraphs": tree}]}))
    predictions = [LikelySpans({(0, 6): 1.0}, 0.2), LikelySpans({(0, 3): 1.0}, 0.6)] * 2
    for rules, threshold, right in (("cmrc", 0.2, 1.0), ("squad", 0.0, 0.5)):
        own = {"train": path, "dev": path, "kind": "answers", "answer": {"no_answer": True, "rules": rules}}
        data = read_data(tune(task=own).task, load_tokenizer(tune().encoder.folder))
        assert isinstance(data.family, AnswerOrNot) and data.dev is not None
        data.family.tune_on_dev(predictions, data.dev)
        assert data.family.threshold == threshold
        judged = score(
            data.family.gold(data.dev), data.family.answers(predictions, data.dev), data.family.metrics
        )
        assert set(judged.values()) == {right}
        assert next(iter(judged)) == ("squad2_best_f1" if rules == "squad" else "squad2_by_cmrc_best_f1")


def test_the_last_model_has_a_threshold_even_if_its_run_was_resumed_at_the_end(
    tune: Tune, tmp_path: Path
) -> None:
    settings = tune(task=task(tmp_path, answer={"no_answer": True}), training={"epochs": 1})
    before = json.loads((run(settings).folder / "final" / "config.json").read_text())["albertine"]
    again = json.loads((run(settings).folder / "final" / "config.json").read_text())["albertine"]
    assert again["threshold"] == pytest.approx(before["threshold"], abs=1e-6)


def test_several_models_give_one_answer(tune: Tune, tmp_path: Path) -> None:
    data = read_data(tune(task=task(tmp_path)).task, load_tokenizer(tune().encoder.folder))
    assert data.dev is not None and isinstance(data.family, Answer)
    one = [LikelySpans({(0, 3): 0.9, (4, 9): 0.1})] * 60
    two = [LikelySpans({(4, 9): 1.0})] * 60
    merged = data.family.merge([one, two], data.dev)
    assert data.family.answers(merged, data.dev)[0] == data.dev.examples[0].example.passage[4:9]
    assert merged[0].spans == pytest.approx({(4, 9): 0.55, (0, 3): 0.45})


def test_answers_that_are_not_in_the_passage(tune: Tune, tmp_path: Path) -> None:
    def spoil(entries: list[dict[str, Any]]) -> None:
        entries[0]["answers"][0]["answer_start"] = -1  # it is there, elsewhere
        entries[1]["answers"][0]["text"] = "absent"

    path = changed(squad(tmp_path / "b.json", 3, 1), spoil)
    first, second, _ = squad_file(path)
    assert first.answers and second.answers == (("absent", -1),)
    text, start = first.answers[0]
    assert first.passage[start : start + len(text)] == text
    settings = tune(task={"train": path, "dev": squad(tmp_path / "a.json", 3, 1), "kind": "answers"})
    data = read_data(settings.task, load_tokenizer(settings.encoder.folder))
    first = f"(the first: question 1-1 in {path})"
    assert data.notes[0] == f"train: 2 examples, 1 left out, their answer is not in the passage {first}"
    data = read_data(settings.task.model_copy(update={"dev": path}), load_tokenizer(settings.encoder.folder))
    missed = "1 with an answer that is not in the passage, never predicted as a whole"
    assert data.notes[1] == f"dev: 3 examples, {missed} {first}"


LONG = "the house and the old man and his time"
LONG_ANSWERS = [
    ("a", f"he was {LONG}", ["was"]),
    ("b", f"he was {LONG}", [LONG]),
    ("c", f"he was {LONG}", [LONG, "was"]),
    ("d", "he was good", ["never"]),
]
"""Names, passages and answers; `LONG` has nine words."""


@pytest.mark.parametrize("form", ["flat", "nested"])
@pytest.mark.parametrize("no_answer", [False, True])
@pytest.mark.parametrize(
    ("sizes", "what", "fate"),
    [
        (
            {"max_length": 12, "question": 4},
            "that no window of task.max_length=12 tokens shows as a whole",
            1,
        ),
        ({"max_length": 32, "longest": 5}, "of more than task.answer.longest=5 tokens", 0),
    ],
)
def test_answers_that_cannot_be_predicted_are_counted_and_named(
    tune: Tune, tmp_path: Path, sizes: dict[str, Any], what: str, fate: int, no_answer: bool, form: str
) -> None:
    """Catches: a long answer that teaches "not here"; a second answer that fits and is not learned."""
    rows = [
        {
            "id": name,
            "context": passage,
            "question": "what",
            "answers": {"text": texts, "answer_start": [passage.find(text) for text in texts]},
        }
        for name, passage, texts in LONG_ANSWERS
    ]
    if no_answer:
        rows.append({**rows[3], "id": "e", "answers": {"text": [], "answer_start": []}})
    path = tmp_path / "long.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    if form == "nested":
        entries = [
            {
                "context": row["context"],
                "qas": [
                    {
                        "id": row["id"],
                        "question": "what",
                        "is_impossible": row["id"] == "e",
                        "answers": [
                            {"text": text, "answer_start": begin}
                            for text, begin in zip(*row["answers"].values(), strict=True)
                        ],
                    }
                ],
            }
            for row in rows
        ]
        path = tmp_path / "long.json"
        path.write_text(json.dumps({"data": [{"paragraphs": entries}]}))
    answer = {k: v for k, v in sizes.items() if k != "max_length"} | {"no_answer": no_answer}
    own = {"kind": "answers", "train": path, "dev": path, "test": path, "answer": answer}
    settings = tune(task={**own, "text": "text", "label": "label", "max_length": sizes["max_length"]})
    data = read_data(settings.task, load_tokenizer(settings.encoder.folder))
    where = f"{path}:{{}}" if form == "flat" else f"{path}"
    long = f"1 with an answer {what}, {{}} (the first: question b in {where.format(2)})"
    absent = f"(the first: question d in {where.format(4)})"
    kept = len(rows) - 1 - fate
    assert data.notes[
        0
    ] == f"train: {kept} examples, 1 left out, their answer is not in the passage {absent}, " + (
        long.format("left out" if fate else "still learned")
    )
    missed = f"1 with an answer that is not in the passage, never predicted as a whole {absent}"
    for split, note in zip(("dev", "test"), data.notes[1:], strict=True):
        assert note == f"{split}: {len(rows)} examples, {long.format('never predicted as a whole')}, {missed}"
    shown = {
        entries.example.name: entries.example.passage[
            entries.passage.starts[target[0, 0] - entries.windows[0].offset] :
        ].split()[0]
        for entries, target in zip(data.train.examples, data.train.targets or (), strict=True)
        if len(entries.windows) == 1 and target[0, 0]
    }
    assert fate or shown == {"a": "was", "b": "the", "c": "was"}
    path.write_text(path.read_text().replace('"was"', '"absent"'))
    with pytest.raises(DataError, match=r"has no question whose answer can be predicted: 2 with"):
        read_data(settings.task, load_tokenizer(settings.encoder.folder))


def test_of_several_places_the_nearest_is_taken(tmp_path: Path) -> None:
    tree = {"context": "a bb a bb a bb", "qas": [{"id": "1", "question": "?", "answers": []}]}
    for stated, place in ((8, 7), (9, 7), (3, 2), (100, 12), (-1, 2), (7, 7), ("-1", 2), (" 8", 7)):
        tree["qas"][0]["answers"] = [{"text": "bb", "answer_start": stated}]  # type: ignore[index]
        (tmp_path / "x.json").write_text(json.dumps({"data": [{"paragraphs": [tree]}]}))
        (found,) = squad_file(tmp_path / "x.json")
        assert found.answers == (("bb", place),), stated


def test_several_files_to_learn_from(tune: Tune, tmp_path: Path, tables: dict[str, Path]) -> None:
    tokenizer = load_tokenizer(tune().encoder.folder)
    files = [squad(tmp_path / "one.json", 7, 1), squad(tmp_path / "two.json", 5, 2)]
    settings = tune(task=task(tmp_path, train=files))
    assert read_data(settings.task, tokenizer).notes[0] == "train: 12 examples"
    both = tune(task={"train": [tables["train"], tables["dev"]]})
    assert read_data(both.task, tokenizer).notes[0] == "train: 500 examples, 2 classes"


def test_sizes_are_settings_and_truncated_questions_are_reported(tune: Tune, tmp_path: Path) -> None:
    sizes = {"stride": 4, "question": 1, "longest": 2, "n_best": 3}
    long = squad(tmp_path / "long.json", 4, 5, question="what was the old man said to be")
    settings = tune(task=task(tmp_path, dev=long, max_length=12, answer=sizes))
    data = read_data(settings.task, load_tokenizer(settings.encoder.folder))
    assert isinstance(data.family, Answer) and data.family.reading == WindowSettings(12, 4, 1, 2, 3)
    assert data.notes[1] == "dev: 4 examples, 4 with a question cut to 1 tokens"
    assert max(map(len, data.train.ids)) == 12 and len(data.train.ids) > 2 * 200
    # A training batch counts windows, as in Google's code; what is judged are questions.
    assert data.train.sizes == (1,) * len(data.train.ids) and data.dev is not None
    assert len({id(example) for example in data.train.examples}) == 200 and len(data.dev.examples) == 4
    assert data.train.targets is not None and {t.shape for t in data.train.targets} == {(1, 2)}
    (first,) = {id(data.train.examples[0])}
    own = [i for i, example in enumerate(data.train.examples) if id(example) == first]
    assert len(own) == len(data.train.examples[0].windows) > 1
    assert np.array_equal(data.train.batch(own[1:2]).targets, data.train.targets[1])


def test_a_share_of_the_windows_without_their_answer_is_left_out(tune: Tune, tmp_path: Path) -> None:
    train = squad(tmp_path / "mixed.json", 60, 5, without=0.3)

    def learned(blank: float) -> Encoded:
        sizes = {"stride": 4, "question": 4, "blank": blank, "no_answer": True}
        settings = tune(task=task(tmp_path, train=train, max_length=12, answer=sizes))
        return read_data(settings.task, load_tokenizer(settings.encoder.folder)).train

    def kinds(data: Encoded) -> tuple[set[bytes], set[bytes], set[bytes]]:
        """Windows that show the answer, those of other questions with one, and those of questions without."""
        assert data.targets is not None
        found: tuple[set[bytes], set[bytes], set[bytes]] = set(), set(), set()
        for i, (example, target) in enumerate(zip(data.examples, data.targets, strict=True)):
            kind = 2 if not example.example.answers else 0 if int(target[0, 0]) else 1
            found[kind].add(example.example.name.encode() + data.ids[i].tobytes() + target.tobytes())
        return found

    whole, half, none = kinds(learned(1.0)), kinds(learned(0.5)), kinds(learned(0.0))
    assert all(map(len, whole))
    assert half[0] == none[0] == whole[0] and half[2] == none[2] == whole[2]
    assert none[1] == set() and half[1] < whole[1]
    assert 0.3 < len(half[1]) / len(whole[1]) < 0.7
    assert kinds(learned(0.5)) == half


def test_a_file_of_the_other_kind_is_refused(tune: Tune, tmp_path: Path, tables: dict[str, Path]) -> None:
    tokenizer = load_tokenizer(tune().encoder.folder)
    plain, mixed = squad(tmp_path / "p.json", 9, 1), squad(tmp_path / "m.json", 9, 2, without=0.5)
    unknown = changed(squad(tmp_path / "u.json", 3, 3), lambda entries: entries[1].update(answers=[]))
    (tmp_path / "c.json").write_text('{"data": [{"paragraphs": [{}]}]}')
    (tmp_path / "t.txt").write_text("a man\nthe house\n")
    for train, answer, message in (
        (mixed, {}, r"m\.json: question 2-\d has no answer.*task\.answer\.no_answer=true"),
        (plain, {"no_answer": True}, r"p\.json: has no question without an answer.*Leave the setting out"),
        (tables["train"], {}, "has no column `question`"),
        (tmp_path / "t.txt", {}, r"t\.txt:2: has no column `question`; it has `a man`"),
        (tmp_path / "c.json", {}, r"is not a file in SQuAD's format.*paragraphs"),
        (unknown, {"no_answer": True}, "has no question without an answer"),
    ):
        settings = tune(task=task(tmp_path, answer=answer) | {"train": train, "dev": None})
        with pytest.raises(DataError, match=message):
            read_data(settings.task, tokenizer)
    with pytest.raises(DataError, match=r"p\.json:1: has no column.*set task\.kind=answers"):
        read_data(tune(task={"train": plain}).task, tokenizer)
    with pytest.raises(DataError, match="dev file has examples without an answer"):
        read_data(tune(task=task(tmp_path, dev=unknown)).task, tokenizer)
    known = {"dataset": "squad", "folder": tmp_path}
    with pytest.raises(SettingsError, match=r"task\.answer\.no_answer is for own files, and squad has"):
        tune(task={"train": None, "dev": None, **known, "answer": {"no_answer": True}})
    only = tune(task={"train": None, "dev": None, "dataset": "xquad", "folder": "xquad"}).task
    with pytest.raises(DataError, match=r"xquad\.en|only tests"):
        read_data(only, tokenizer)


def test_a_classifier_does_not_answer(tune: Tune) -> None:
    folder = run(tune(training={"epochs": 0.1})).folder
    with pytest.raises(ModelError, match="tuned to classify texts, and cannot answer from passages"):
        Predictor(folder / "best").answer("what", "a text")


def test_chinese_is_learned_and_answered_in_characters(tune: Tune, shared_data: Path, tmp_path: Path) -> None:
    """A few real questions at toy size, over and over: the predicted spans are those of the passage."""
    from albertine.interop.huggingface.folders import save_model
    from albertine.model.model import Model
    from albertine.pretraining.initial_model import encoder_config
    from albertine.pretraining.settings import ModelChoice
    from tests.toy import MODEL

    tokenizer = load_tokenizer(shared_data / "tokenizers" / "bert-zh-21128")
    choice = ModelChoice(preset="albert-tiny-zh", change={**MODEL, "initializer_range": 0.1})
    save_model(Model(encoder_config(choice, tokenizer.vocab_size, 256), seed=3), tokenizer, tmp_path / "zh")
    questions = [
        q
        for q in squad_file(shared_data / "cmrc2018" / "trial.json.xz")
        if len(q.passage) < 300 and q.answers and len(q.answers[0][0]) < 12
    ][:6]
    assert len(questions) == 6
    paragraphs = [
        {
            "context": q.passage,
            "qas": [
                {
                    "id": q.name,
                    "question": q.question,
                    "answers": [{"text": t, "answer_start": s} for t, s in q.answers or ()],
                }
            ],
        }
        for q in questions
    ]
    path = tmp_path / "few.json"
    path.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}), encoding="utf-8")
    settings = tune(
        encoder={"folder": tmp_path / "zh"},
        task={
            "train": path,
            "dev": path,
            "kind": "answers",
            "max_length": 256,
            "answer": {"rules": "cmrc"},
        },
        training={"epochs": 30, "batch_size": 6, "micro_batch_tokens": 4096, "learning_rate": 0.005},
        watching={"evaluations": 1},
    )
    result = run(settings)
    assert result.scores.keys() >= {"cmrc_average", "cmrc_f1", "cmrc_exact"}
    assert result.scores["cmrc_average"] > 0.5
    predictor = Predictor(result.folder / "best", precision="float32")
    for line, q in zip(
        (result.folder / "predictions-dev.jsonl").open(encoding="utf-8"), questions, strict=True
    ):
        best = predictor.answer(q.question, q.passage)
        assert best is not None and q.passage[best.begin : best.end] == json.loads(line)["prediction"]


def test_a_question_as_long_as_allowed_is_not_cut(tune: Tune) -> None:
    tokenizer = load_tokenizer(tune().encoder.folder)
    text = "what was the man said to be"
    size = len(tokenizer.encode(text))
    for allowed, cut in ((size, False), (size - 1, True)):
        question = Question("a", text, "the old man", None, "")
        assert encode([question], tokenizer, WindowSettings(64, question=allowed)).examples[0].cut == cut


def test_truncated_questions_are_reported_by_predictions(
    tune: Tune, tmp_path: Path, albertine: Command
) -> None:
    """Counted once, in however many windows it is."""
    settings = tune(task=task(tmp_path, answer={"question": 4, "stride": 4}), training={"steps": 1})
    model, long = run(settings).folder / "final", "what was the old man said to be"
    passage, warning = "the old man and the good house " * 4, "texts were too long and lost their end"
    predictor = Predictor(model)
    predictor.answer("what", passage)
    assert predictor.cut == 0
    predictor.likely_spans([("what", passage), (long, passage), (long, "the old man")])
    assert predictor.cut == 2
    outcome = albertine("predict", "answer", model, "what", passage)
    assert outcome.code == 0 and warning not in outcome.err
    outcome = albertine("predict", "answer", model, long, passage)
    assert outcome.code == 0 and f"warning: 1 {warning}" in outcome.err
    rows = [{"context": passage, "question": question} for question in ("what", long, long, long)]
    (source := tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    outcome = albertine("predict", "answer", model, "--file", source, "-o", tmp_path / "out.csv")
    assert outcome.code == 0 and f"warning: 3 {warning}" in outcome.err


def test_a_token_that_ends_where_the_answer_begins_is_no_part_of_it(tune: Tune) -> None:
    tokenizer = load_tokenizer(tune().encoder.folder)
    passage = "he said:good;and"
    question = Question("a", "what", passage, (("good", passage.index("good")),), "")
    data = encode([question], tokenizer, WindowSettings(64))
    assert data.targets is not None
    (first, last), found = data.targets[0][0].tolist(), data.examples[0]
    a, b = (place - found.windows[0].offset for place in (first, last))
    assert passage[found.passage.starts[a] : found.passage.ends[b]] == "good"


@pytest.mark.parametrize("recipe", ["cmrc2018", "cmrc2018-small"])
def test_the_recipes_of_cmrc_have_room_for_its_answers(shared_data: Path, recipe: str) -> None:
    """A token of Chinese is a character: of 30, as in English, one answer in twenty has more."""
    tree = read_yaml(Path(__file__).parents[2] / "recipes" / "finetune" / f"{recipe}.yaml")
    longest = tree["task"].get("answer", {}).get("longest", WindowSettings().longest)
    tokenizer = load_tokenizer(shared_data / "tokenizers" / "bert-zh-21128")
    found = list(squad_file(shared_data / "cmrc2018" / "dev.json.xz"))
    least = [min(len(tokenizer.encode(text)) for text, _ in q.answers or ()) for q in found]
    assert sum(size > longest for size in least) < 0.01 * len(found)
