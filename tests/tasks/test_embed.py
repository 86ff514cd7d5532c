"""Text vectors: pairs out of real and own files, whole runs that learn, and what a folder then answers."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import albertine
from albertine.core.settings import load
from albertine.errors import AlbertineError, DataError, ModelError, RunError, SettingsError
from albertine.export.export_model import export
from albertine.tasks.dataset_files import Data
from albertine.tasks.dataset_registry import Dataset, named
from albertine.tasks.datasets.similarity import read, to_judge, to_learn
from albertine.tasks.embed import Embed, Likeness, encode
from albertine.tasks.family import Fields
from albertine.tasks.finetune import FinetuneResult, TaskBatches, finetune
from albertine.tasks.prediction_rows import rows_to_predict
from albertine.tasks.predictor import Predictor
from albertine.tasks.settings import FinetuneSettings
from albertine.tasks.task_data import read_data
from albertine.tasks.text_vectors import cosines
from albertine.tokenizers.load import load_tokenizer
from albertine.training.progress import Reporter
from tests.tasks.conftest import Tune

RECIPES = Path(__file__).resolve().parents[2] / "recipes" / "finetune"
TOPICS = ("good", "never", "time", "house")
FILLERS = ("the", "and", "he", "was", "old", "man", "of", "said")


def sentence(rng: np.random.Generator, topic: str) -> str:
    words = [str(w) for w in rng.choice(FILLERS, 5)]
    words[int(rng.integers(5))] = topic
    return " ".join(words)


def pairs_file(path: Path, count: int, seed: int) -> Path:
    """Pairs that are alike if they share one of four words, and a text on another of them."""
    rng = np.random.default_rng(seed)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["first", "second", "points", "third"])
        for i in range(count):
            one, other = (str(t) for t in rng.choice(TOPICS, 2, replace=False))
            second = one if i % 2 else other
            points = 5 if second == one else 1
            writer.writerow([sentence(rng, one), sentence(rng, second), points, sentence(rng, other)])
    return path


def table(path: Path | None) -> list[dict[str, str]]:
    assert path is not None
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("own pairs")
    return {"train": pairs_file(folder / "train.csv", 240, 1), "dev": pairs_file(folder / "dev.csv", 100, 2)}


@pytest.fixture
def alike(tune: Tune, pairs: dict[str, Path]) -> Tune:
    """Settings of a toy run on the pairs."""

    def make(**changes: Any) -> FinetuneSettings:
        task = {**pairs, "kind": "similarity", "text": "first", "pair": "second", "label": "points"}
        own = {**changes.pop("task", {})}
        ways = {"lowest": 1, "highest": 5, **own.pop("similarity", {})}
        return tune(**{"task": {**task, **own, "similarity": ways}, **changes})

    return make


def run(settings: FinetuneSettings) -> FinetuneResult:
    result = finetune(settings, reporter=Reporter(quiet=True))
    assert result.outcome.done
    return result


def data(settings: FinetuneSettings) -> Data:
    return read_data(settings.task, load_tokenizer(settings.encoder.folder))


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "ways",
    [
        {"loss": "cosine"},
        {"loss": "cosent", "pooling": "cls"},
        {"loss": "contrastive"},
        {"loss": "contrastive", "negative": "third", "symmetric": True, "normalize": True},
    ],
    ids=["cosine", "cosent", "contrastive", "hard negatives"],
)
def test_a_run_learns(alike: Tune, ways: dict[str, Any]) -> None:
    result = run(alike(task={"similarity": ways}))
    assert result.scores["spearman"] > 0.7, result.scores
    predictor = Predictor(result.folder / "best", precision="float32")
    predictions = [
        json.loads(line) for line in (result.folder / "predictions-dev.jsonl").read_text().splitlines()
    ]
    dev = table(alike().task.dev)
    firsts, seconds = ([row[side] for row in dev] for side in ("first", "second"))
    found = predictor.similarity(firsts, seconds).diagonal()
    assert [line["prediction"] for line in predictions] == pytest.approx(found.tolist(), abs=1e-5)
    there, fields = rows_to_predict(alike().task.dev, predictor.family, Fields("first", "second"))
    rows = [answer["prediction"] for _, answer in cosines(predictor, there, fields)]
    assert rows == pytest.approx(found.tolist(), abs=1e-5)
    assert [line["label"] for line in predictions] == [(float(row["points"]) - 1) / 4 for row in dev]
    lengths = np.linalg.norm(predictor.embed(firsts), axis=1)
    assert np.allclose(lengths, 1, atol=1e-5) == ("normalize" in ways)


def test_simcse_needs_no_labels_and_pulls_texts_apart(
    alike: Tune, pairs: dict[str, Path], tmp_path: Path
) -> None:
    rows = table(pairs["train"])
    bare = tmp_path / "bare.csv"
    bare.write_text("\n".join(["first", *(row["first"] for row in rows[:100])]))
    settings = alike(
        task={"train": bare, "similarity": {"loss": "simcse"}},
        encoder={"dropout": 0.1},
        training={"epochs": 3},
    )
    texts = [row["second"] for row in rows[:30]]
    before = Predictor(settings.encoder.folder, precision="float32").similarity(texts, texts)
    after = Predictor(run(settings).folder / "final", precision="float32").similarity(texts, texts)
    assert after.mean() < before.mean() - 0.1
    with pytest.raises(SettingsError, match="simcse learns from dropout alone"):
        alike(task={"similarity": {"loss": "simcse"}}, encoder={"dropout": 0})
    own = alike(name="own", task={"similarity": {"loss": "simcse"}})  # the checkpoint has none
    with pytest.raises(SettingsError, match="simcse learns from dropout alone"):
        run(own)
    assert not own.folder.exists()


@pytest.mark.sample(1)
@pytest.mark.parametrize("normalize", [False, True])
def test_whitened_vectors_are_what_the_folder_answers(alike: Tune, normalize: bool, tmp_path: Path) -> None:
    """An early depth alone is kept; the run, its folder, an export and sentence-transformers give equal
    vectors, also for a text that is longer than what was learned from."""
    ways = {"loss": "cosine", "pooling": "whitened", "normalize": normalize}
    settings = alike(task={"similarity": ways, "max_length": 16}, training={"epochs": 3})
    result = run(settings)
    assert result.scores["spearman"] > 0.7, result.scores
    best, predictor = result.folder / "best", Predictor(result.folder / "best", precision="float32")
    assert predictor.model.config.plan.depth == 1
    predictions = [
        json.loads(line) for line in (result.folder / "predictions-dev.jsonl").read_text().splitlines()
    ]
    dev = table(settings.task.dev)
    firsts, seconds = ([row[side] for row in dev] for side in ("first", "second"))
    vectors = predictor.embed(firsts)
    found = predictor.similarity(firsts, seconds).diagonal()
    assert [line["prediction"] for line in predictions] == pytest.approx(found.tolist(), abs=1e-5)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5) == normalize
    again = albertine.evaluate(result.folder)["dev"]
    assert again["pearson"] == pytest.approx(result.scores["pearson"], abs=1e-5)
    package = pytest.importorskip("sentence_transformers")
    texts = [*firsts[:20], " ".join(firsts[:9])]
    vectors = predictor.embed(texts)
    assert np.abs(vectors[-1] - predictor.embed([" ".join(firsts[:5])])[0]).max() < 1e-5
    theirs = package.SentenceTransformer(str(best), device="cpu").encode(texts)
    np.testing.assert_allclose(vectors, theirs, atol=1e-4 * np.abs(vectors).max())
    export(best, tmp_path / "out")
    graph = Predictor(tmp_path / "out")
    np.testing.assert_allclose(vectors, graph.embed(texts), atol=1e-4 * np.abs(vectors).max())
    assert not (tmp_path / "out" / "modules.json").exists()


def test_whitened_vectors_of_more_layers_and_of_a_resumed_run(
    alike: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whitening is measured on the untuned encoder, also by the process that resumes a run."""
    from albertine.tasks import finetune as module

    task = {"similarity": {"loss": "cosine", "pooling": "whitened"}}
    ways: dict[str, Any] = {"task": task, "encoder": {"num_hidden_layers": 2}}
    whole = run(alike(name="whole", **ways, training={"steps": 8}))
    cut, plain, calls = alike(name="cut", **ways, training={"steps": 8}), module.loss, 0

    def failing(family: Any) -> Any:
        def part(*inputs: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == 7:
                raise KeyError("the machine fell over")
            return plain(family)(*inputs)

        return part

    monkeypatch.setattr(module, "loss", failing)
    with pytest.raises(KeyError):
        run(cut)
    monkeypatch.setattr(module, "loss", plain)
    again = run(cut)
    for name in ("model.safetensors", "whitening.safetensors"):
        assert (again.folder / "final" / name).read_bytes() == (whole.folder / "final" / name).read_bytes()
    assert Predictor(again.folder / "final").model.config.plan.depth == 2


def test_a_folder_without_its_whitening_is_refused(alike: Tune) -> None:
    result = run(alike(task={"similarity": {"pooling": "whitened"}}, training={"steps": 2}))
    (result.folder / "best" / "whitening.safetensors").unlink()
    with pytest.raises(ModelError, match="no whitening"):
        albertine.evaluate(result.folder)


def test_an_interrupted_run_refuses_other_ways(alike: Tune) -> None:
    short = {"steps": 2}
    run(alike(task={"similarity": {"loss": "cosine"}}, training=short))
    with pytest.raises(AlbertineError, match="similarity"):
        run(alike(task={"similarity": {"loss": "cosent"}}, training=short))


def test_examples_that_are_compared_stay_together(alike: Tune) -> None:
    for loss in ("cosine", "cosent", "contrastive"):
        settings = alike(task={"similarity": {"loss": loss}}, training={"batch_size": 60})
        train = data(settings).train
        _, batches = next(iter(TaskBatches(train, settings, None)))
        assert (len(batches) > 1) == (loss == "cosine")
        assert sum(batch.predictions for batch in batches) == 60  # type: ignore[attr-defined]
        halves = [next(iter(TaskBatches(train, settings, None, rank, 2)))[1] for rank in range(2)]
        assert sum(batch.num_tokens for half in halves for batch in half) == sum(
            b.num_tokens for b in batches
        )


def test_rows_and_targets(alike: Tune) -> None:
    tokenizer = load_tokenizer(alike().encoder.folder)
    examples = [Likeness("0", "good", "time", 0.25, "", "never"), Likeness("1", "time", "good", 1.0, "")]
    scored = encode(examples, tokenizer, 32)
    assert scored.sizes == (2, 2)
    assert scored.batch([1, 0]).targets.tolist() == [1.0, 0.25]
    assert scored.ids[1].tolist() == tokenizer("time")["input_ids"] == scored.ids[2].tolist()
    contrast = encode(examples, tokenizer, 32, contrast=True)
    batch = contrast.batch([0, 1])
    assert batch.rows == (3, 2) and batch.predictions == 2
    assert batch.targets.tolist() == [[0, 1, 2], [1, 0, -1]]


def test_the_loss_is_of_the_right_rows(alike: Tune) -> None:
    """A model that gives every row its number: what is compared with what can be read off."""
    tokenizer = load_tokenizer(alike().encoder.folder)
    examples = [Likeness("0", "good", "time", 0.5, "", "never"), Likeness("1", "old", "man", 1.0, "")]

    def numbered(packed: Any) -> torch.Tensor:
        angles = torch.arange(packed.num_sequences) / 3
        return torch.stack([angles.cos(), angles.sin()], 1)

    family = Embed("cosine", 32)
    part = family.part(numbered, family.encode_to_learn(examples, tokenizer).batch([0, 1]))
    step = float(np.cos(1 / 3))
    assert float(part.loss_sum) == pytest.approx((step - 0.5) ** 2 + (step - 1) ** 2, rel=1e-5)
    family = Embed("contrastive", 32, scale=2.0)
    part = family.part(numbered, family.encode_to_learn(examples, tokenizer).batch([0, 1]))
    expected = 0.0
    for anchor, own in ((0, 1), (3, 4)):
        scores = {row: 2 * np.cos((anchor - row) / 3) for row in (1, 4, 2)}
        expected += float(np.log(sum(np.exp(s) for s in scores.values())) - scores[own])
    assert float(part.loss_sum) == pytest.approx(expected, rel=1e-5)


def test_members_of_an_ensemble_are_averaged(alike: Tune) -> None:
    dev = data(alike()).dev
    assert dev is not None
    cosines = [np.array([0.2, 0.4]), np.array([0.6, -0.4])]
    assert Embed("cosine", 32).merge(cosines, dev).tolist() == pytest.approx([0.4, 0.0])


def test_equal_texts_are_equally_alike(alike: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    """What rounding makes of the same vectors is no order."""
    tokenizer = load_tokenizer(alike().encoder.folder)
    same = encode([Likeness(str(i), "good", "good", None, "") for i in range(300)], tokenizer, 32)
    vectors = np.random.default_rng(1).normal(size=(300, 24)).astype(np.float32).repeat(2, axis=0)
    monkeypatch.setattr("albertine.tasks.embed.over_rows", lambda *arguments: vectors)
    family = Embed("cosine", 32)
    found = family.predict(None, same)  # type: ignore[arg-type]
    assert found.max() == 1 > found.min()
    assert set(family.answers(found, same)) == {1.0}


OFFICIAL = {  # data set, its folder, and pairs of train, dev and test
    "sts-b": ("glue/STS-B", (5749, 1500, 1379)),
    "sick-relatedness": ("sick", (4500, 500, 4927)),
    "sick-entailment": ("sick", (4500, 500, 4927)),
    "mrpc": ("glue/MRPC", (3668, 408, 1725)),
    "afqmc": ("afqmc", (34334, 4316, 3861)),
    "ocnli-10k": ("ocnli", (10000, 3000, 3000)),
    "lcqmc": ("lcqmc", (0, 8802, 12500)),
    "bq": ("bq_corpus", (0, 10000, 10000)),
    "paws-x": ("pawsx_zh", (0, 2000, 2000)),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", OFFICIAL)
def test_real_files(shared_data: Path, name: str) -> None:
    folder, counts = OFFICIAL[name]
    for split, count in zip(("train", "dev", "test"), counts, strict=True):
        if not count:
            continue
        found = list(read(named(name), shared_data / folder, split))
        assert len(found) == count, split
        scores = [p.label for p in found if p.label is not None]
        labelled = split != "test" or folder == "sick"
        dropped = {"train": 15, "dev": 50}.get(split, 0) * (name == "ocnli-10k")
        assert (len(scores), sum(p.left_out for p in found)) == ((count - dropped) * labelled, dropped)
        if split != "train":
            assert len(to_judge(found, "label", test=split == "test")) == count - dropped
        if labelled:
            assert (min(scores), max(scores)) == (0.0, 1.0)


def test_contrasts_of_real_files(shared_data: Path) -> None:
    """Entailments, with a contradiction of the same premise; pairs that mean the same."""
    ocnli = list(read(named("ocnli-10k"), shared_data / "ocnli", "train"))
    found = to_learn(ocnli, "contrastive")
    assert len(found) == sum(p.label == 1 for p in ocnli)
    refuted = {(p.text, p.pair) for p in ocnli if p.label == 0}
    hard = [e for e in found if e.negative is not None]
    assert hard and all((e.text, e.negative) in refuted for e in hard)
    missed = [e for e in found if e.negative is None]
    assert not {e.text for e in missed} & {text for text, _ in refuted}
    afqmc = list(read(named("afqmc"), shared_data / "afqmc", "dev"))
    assert len(to_learn(afqmc, "contrastive")) == sum(p.label == 1 for p in afqmc)
    texts = to_learn(afqmc, "simcse")
    assert len({e.text for e in texts}) == len(texts) and all(e.text == e.pair for e in texts)


def test_contrasts_take_turns() -> None:
    passes = [
        ("a", "b", 1.0),
        ("a", "c", 0.9),
        ("a", "x", 0.0),
        ("a", "y", 0.1),
        ("a", "z", 0.5),
        ("d", "e", 1.0),
    ]
    pairs = [Likeness(str(i), *row, where="") for i, row in enumerate(passes)]
    found = to_learn(pairs, "contrastive")
    assert [(e.pair, e.negative) for e in found] == [("b", "x"), ("c", "y"), ("e", None)]
    assert [p.label for p in to_learn([*pairs, Likeness("6", "f", "g", None, "")], "cosine")][-1] == 1.0
    bare = [Likeness("0", "a", "b", None, "f:1")]
    assert to_learn(bare, "contrastive") == bare
    with pytest.raises(DataError, match="f:1: the training file has no scores"):
        to_learn(bare, "cosent")
    with pytest.raises(DataError, match="no pairs that are alike"):
        to_learn([Likeness("0", "a", "b", 0.0, "f:1")], "contrastive")


HEAD = "first,second,points,third\n"


@pytest.mark.parametrize(
    ("content", "task", "message"),
    [
        (HEAD + "a,b,6,c\n", {}, r"mine\.csv:2: `points` is 6, outside 1 to 5.*task\.similarity\.lowest"),
        (HEAD + "a,b,nan,c\n", {}, r"mine\.csv:2: `points` is `nan`, not a number"),
        (HEAD + "a,b,1,c\na,b,good,c\n", {}, r"mine\.csv:3: `points` is `good`, not a number"),
        ("first,points\na,1\n", {}, r"mine\.csv:2: has no column `second`"),
        ("first,second\na,b\n", {}, r"mine\.csv:2: the training file has no scores"),
        ("first,second,points\na,b,5\n", {"similarity": {"negative": "third"}}, r"has no column `third`"),
        (HEAD, {}, "holds no train examples"),
    ],
)
def test_wrong_settings_are_reported(
    alike: Tune, tmp_path: Path, content: str, task: dict[str, Any], message: str
) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(content)
    with pytest.raises(DataError, match=message):
        data(alike(task={"train": path, **task}))


SAME = [("x", "y"), ("x", "z"), ("w", "x")]
NOTHING = {
    "equal scores": ({}, [("x", "y", 5), ("z", "w", 5)], r"all scores are equal \(1 on a scale"),
    "equal scores of cosines": ({"loss": "cosine"}, [("x", "y", 5), ("z", "w", 5)], "all scores are equal"),
    "one pair": ({}, [("x", "y", 5), ("y", "x", 1)], "all pairs are of the same two texts"),
    "pairs with themselves": ({"loss": "cosine"}, [("x", "x", 5), ("y", "y", 1)], "paired with itself"),
    "a text in all": ({"loss": "contrastive"}, [(a, b, 5) for a, b in SAME], "shares a text with every"),
    "a triangle": (
        {"loss": "contrastive"},
        [("x", "y", 5), ("y", "z", 5), ("z", "x", 5), ("x", "y", 5)],
        "shares a text with every",
    ),
    "one text": ({"loss": "simcse"}, [("x", "x", 5), ("x", "x", 1)], "shares a text with every"),
    "equal tokens": (
        {},
        [("\u1234", "\u1235", 5), ("\u1236", "\u1237", 1)],
        "all texts have the same tokens",
    ),
}


@pytest.mark.parametrize("case", NOTHING)
def test_pairs_of_which_nothing_can_be_learned_are_refused(alike: Tune, tmp_path: Path, case: str) -> None:
    """Catches: a run with a loss of zero that is done, and whose weights are those of the encoder."""
    ways, rows, message = NOTHING[case]
    (file := tmp_path / "own.csv").write_text(
        "first,second,points\n" + "".join(f"{a},{b},{c}\n" for a, b, c in rows), encoding="utf-8"
    )
    settings = alike(task={"train": file, "similarity": ways}, encoder={"dropout": 0.1})
    with pytest.raises(DataError, match=rf"own\.csv:\d+: .*{message}.*there is nothing to learn"):
        run(settings)
    assert not settings.folder.exists()


def test_what_can_be_learned_of_few_pairs_is_not_refused(alike: Tune, tmp_path: Path) -> None:
    for ways, rows in (
        ({}, [("x", "y", 5), ("x", "x", 1)]),
        ({"loss": "cosine"}, [("x", "y", 5)]),
        ({"loss": "contrastive"}, [("x", "y", 5), ("z", "w", 5)]),
        ({"loss": "contrastive"}, [("x", "y", 5), ("x", "z", 1)]),  # which is a hard negative
    ):
        (file := tmp_path / "own.csv").write_text(
            "first,second,points\n" + "".join(f"{a},{b},{c}\n" for a, b, c in rows)
        )
        assert data(alike(task={"train": file, "similarity": ways})).train.examples


@pytest.mark.parametrize("ways", [{}, {"loss": "contrastive"}, {"loss": "simcse"}])
def test_batches_of_one_have_nothing_to_compare(alike: Tune, ways: dict[str, Any]) -> None:
    changes: dict[str, Any] = {"encoder": {"dropout": 0.1}, "training": {"batch_size": 1, "steps": 3}}
    with pytest.raises(SettingsError, match=r"batches of 1 have nothing to compare.*Set it to 2 or more"):
        run(alike(task={"similarity": ways}, **changes))
    for learns in ({"loss": "cosine"}, {"loss": "contrastive", "negative": "third"}):
        run(alike(name=learns["loss"], task={"similarity": learns}, **changes))


def test_a_run_whose_first_batches_teach_nothing_ends(alike: Tune, tmp_path: Path) -> None:
    rows = [f"the man {'old ' * (i % 7)},he was {i},{1 if i == 40 else 5}" for i in range(200)]
    (file := tmp_path / "own.csv").write_text("\n".join(["first,second,points", *rows]))
    settings = alike(task={"train": file}, training={"batch_size": 2, "steps": 5})
    with pytest.raises(RunError, match=r"gradient is exactly zero in all of the first 5 steps.*batch_size"):
        run(settings)
    assert not (settings.folder / "final").exists()


def test_missing_files_are_reported(alike: Tune, tmp_path: Path) -> None:
    bare = tmp_path / "dev.csv"
    bare.write_text("first,second\na,b\n")
    with pytest.raises(DataError, match=r"dev\.csv:2: `points` is missing or empty"):
        data(alike(task={"dev": bare, "similarity": {"loss": "contrastive"}}))
    with pytest.raises(SettingsError, match=r"needs task\.pair"):
        alike(task={"pair": None})
    with pytest.raises(SettingsError, match="lowest 1 is not below highest 1"):
        alike(task={"similarity": {"highest": 1}})
    known = {"train": None, "dev": None, "dataset": "cola", "folder": tmp_path}
    with pytest.raises(SettingsError, match=r"`cola` is no data set of the kind similarity.*sts-b"):
        data(alike(task=known))


def test_the_column_of_negatives_is_learned_from(alike: Tune, tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    rows = [
        {"first": "good time", "second": "time", "points": 5, "third": "never"},
        {"first": "old man", "second": "man", "points": 5, "third": ""},
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    found = data(alike(task={"train": path, "similarity": {"loss": "contrastive", "negative": "third"}}))
    assert [e.negative for e in found.train.examples] == ["never", None]
    assert found.train.sizes == (3, 2) and "1 with a hard negative" in found.notes[0]


def test_rows_are_counted(alike: Tune, tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    rows = [
        {"first": "good time", "second": "time", "points": 5},
        {"first": "good time", "second": "never", "points": 1},
        {"first": "", "second": "he was", "points": 5},
        {"first": "old man", "second": "man", "points": 3},
        {"first": "old man", "second": "man", "points": None},
        {"first": "the old man " * 20, "second": "man", "points": 5},
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    notes = data(alike(task={"train": path, "similarity": {"loss": "contrastive"}})).notes[0]
    assert notes == (
        "train: 3 examples, 1 with a hard negative, 3 not taken, 1 with an empty text, 1 cut to 32 tokens"
    )
    notes = data(alike(task={"train": path})).notes[0]
    assert notes.startswith("train: 5 examples, 1 not taken")


def test_any_folder_embeds(pretrained: Path) -> None:
    predictor = Predictor(pretrained, precision="float32")
    texts = ["he was old", "the " * 600, "", "good time, old man"]
    found = predictor.embed(texts)
    assert found.shape == (4, 32) and found.dtype == np.float32
    alone = np.concatenate([predictor.embed([text]) for text in texts])
    np.testing.assert_allclose(found, alone, atol=1e-5)
    np.testing.assert_array_equal(predictor.embed("good"), predictor.embed(["good"]))
    assert predictor.embed([]).shape == (0, 32)
    assert predictor.embedder(texts).cut == 1
    first = predictor.embed(texts, pooling="cls", normalize=True)
    assert not np.allclose(first, found, atol=1e-2)
    assert np.linalg.norm(first, axis=1) == pytest.approx([1] * 4, abs=1e-5)
    table = predictor.similarity(texts[:2], texts)
    assert table.shape == (2, 4) and table[0, 0] == pytest.approx(1, abs=1e-5)
    assert table[1, 3] == pytest.approx(
        found[1] @ found[3] / np.linalg.norm(found[1]) / np.linalg.norm(found[3]), abs=1e-5
    )
    with pytest.raises(SettingsError, match=r"no pooling `max`.*mean, cls, depths"):
        predictor.embed(texts, pooling="max")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # sentence-transformers' STS benchmark example; bojone/CoSENT, cosent.py
        ("sts-b-vectors", ("sts-b", "cosine", "mean", 16, 4, 2e-5, 128, "linear", 0.1)),
        ("afqmc-vectors", ("afqmc", "cosent", "cls", 32, 5, 2e-5, 64, "constant", 0.0)),
    ],
)
def test_recipes(name: str, expected: tuple[Any, ...]) -> None:
    settings = load(FinetuneSettings, RECIPES / f"{name}.yaml")
    task, training = settings.task, settings.training
    assert settings.name == name and task.kind == "similarity" and task.similarity.scale == 20
    ways = (task.dataset, task.similarity.loss, task.similarity.pooling)
    times = (training.batch_size, training.epochs, training.learning_rate, task.max_length)
    assert (*ways, *times, training.schedule, training.warmup) == expected


@pytest.mark.matrix
def test_real_tasks_go_the_whole_way(alike: Tune, shared_data: Path) -> None:
    for name, folder, loss in (("sts-b", "glue/STS-B", "cosine"), ("ocnli-10k", "ocnli", "contrastive")):
        known = {"train": None, "dev": None, "dataset": name, "folder": shared_data / folder}
        known |= {"text": "text", "pair": None, "label": "label"}  # the set has columns of its own
        settings = alike(
            name=name,
            task={**known, "similarity": {"loss": loss, "lowest": 0, "highest": 1}},
            training={"steps": 3},
            watching={"evaluations": 1},
        )
        result = run(settings)
        assert -1 <= result.scores["spearman"] <= 1
        lines = (result.folder / "predictions-test.jsonl").read_text().splitlines()
        assert len(lines) == (1379 if name == "sts-b" else 3000)
        assert result.test == {}


def test_a_pair_without_a_score_has_no_target(alike: Tune) -> None:
    tokenizer = load_tokenizer(alike().encoder.folder)
    examples = [Likeness("0", "good", "time", None, ""), Likeness("1", "time", "good", 0.0, "")]
    assert encode(examples, tokenizer, 32).targets is None
    assert encode(examples[1:], tokenizer, 32).targets == [np.zeros(1)]


def test_a_text_that_just_fits_is_not_cut(pretrained: Path) -> None:
    embedder = Predictor(pretrained).embedder
    fits = "good " * (embedder.limit - 2)
    assert len(embedder.tokenizer.encode(fits)) == embedder.limit - 2
    assert embedder([fits]).cut == 0 and embedder([fits, fits + "good"]).cut == 1


def test_four_points_of_five_are_alike_and_one_is_not() -> None:
    pairs = [Likeness("0", "a", "b", 4 / 5, ""), Likeness("1", "a", "x", 1 / 5, "")]
    assert [(e.pair, e.negative) for e in to_learn(pairs, "contrastive")] == [("b", "x")]


def test_the_scale_and_the_output_projection_are_those_of_the_settings(alike: Tune) -> None:
    ways = {"loss": "contrastive", "scale": 7.0, "symmetric": True}
    family = data(alike(task={"similarity": ways})).family
    assert isinstance(family, Embed) and (family.scale, family.symmetric) == (7.0, True)
    tokenizer = load_tokenizer(alike().encoder.folder)
    examples = [Likeness("0", "good", "time", 0.5, ""), Likeness("1", "old", "man", 1.0, "")]

    def turned(packed: Any) -> torch.Tensor:
        angles = torch.arange(packed.num_sequences) ** 2 / 10  # 0, 0.1 and 0.4, 0.9
        return torch.stack([angles.cos(), angles.sin()], 1)

    family = Embed("cosent", 32, scale=2.0)
    part = family.part(turned, family.encode_to_learn(examples, tokenizer).batch([0, 1]))
    expected = 2 * float(np.log1p(np.exp(2 * (np.cos(0.1) - np.cos(0.5)))))
    assert float(part.loss_sum) == pytest.approx(expected, rel=1e-4)
    family = Embed("contrastive", 32, scale=2.0, symmetric=True)
    part = family.part(turned, family.encode_to_learn(examples, tokenizer).batch([0, 1]))
    total = 0.0
    for own, other in ((0.1, 0.9), (0.5, 0.3), (0.1, 0.3), (0.5, 0.9)):  # there, there, back, back
        total += float(np.log1p(np.exp(2 * (np.cos(other) - np.cos(own))))) / 2
    assert float(part.loss_sum) == pytest.approx(total, rel=1e-4)


def test_the_index_that_pandas_writes_is_no_text(tmp_path: Path) -> None:
    """Nor a score; its name is empty, as that of a column without a name."""
    (tmp_path / "t.csv").write_text(",text\n0,a b\n1,c d\n")
    dataset = Dataset.model_validate({"kind": "similarity", "files": {"train": "t.csv"}})
    found = list(read(dataset, tmp_path, "train", alone=True))
    assert [(p.text, p.pair) for p in found] == [("a b", "a b"), ("c d", "c d")]


def test_cosines_use_the_requested_pooling(pretrained: Path) -> None:
    predictor, texts = Predictor(pretrained, precision="float32"), ["he was old", "good time, old man"]
    first = predictor.embed(texts, pooling="cls", normalize=True)
    found = predictor.similarity(texts, texts, pooling="cls")
    np.testing.assert_allclose(found, first @ first.T, atol=1e-5)
    assert not np.allclose(found, predictor.similarity(texts, texts), atol=1e-4)
