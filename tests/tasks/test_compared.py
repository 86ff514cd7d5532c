"""Pairs whose two texts are compared: the mathematics, and the way through a folder."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import albertine
from albertine.cli.app import run
from albertine.core.batch import Packed, pack
from albertine.errors import AlbertineError, DataError
from albertine.interop.heads import usual_pooling
from albertine.model.pair_head import Comparer, pair_means
from albertine.model.sharing import SharingPlan
from albertine.tasks.encoded import Encoded
from albertine.tasks.finetune import FinetuneResult
from albertine.tasks.rescore import evaluate_run, open_run
from albertine.tasks.whitened_start import RIDGE, whiten
from tests import stand_in
from tests.model import builders

ROWS = [([2, 7, 8, 9, 3, 11, 12, 3], [0] * 5 + [1] * 3), ([2, 5, 3, 6, 3], [0, 0, 0, 1, 1])]


def batch() -> Packed:
    return pack([ids for ids, _ in ROWS], [types for _, types in ROWS])


def comparer(**changes: object) -> Comparer:
    made = Comparer(builders.model(SharingPlan.unshared(3), **changes), 3, dropout=0.0, seed=1)
    with torch.no_grad():
        made.get_submodule("classifier").weight.normal_(generator=torch.Generator().manual_seed(2))
    return made.eval()


def test_means_leave_special_tokens_out() -> None:
    x = torch.arange(26.0).view(13, 2)
    found = pair_means(x, batch(), lead=1)
    expected = torch.stack(
        [torch.stack([x[1:4].mean(0), x[5:7].mean(0)]), torch.stack([x[9:10].mean(0), x[11:12].mean(0)])]
    )
    torch.testing.assert_close(found, expected)


def test_means_where_cls_is_last() -> None:
    packed = pack([[7, 8, 4, 9, 4, 3]], [[0, 0, 0, 1, 1, 2]])
    x = torch.arange(12.0).view(6, 2)
    expected = torch.stack([x[:2].mean(0), x[3]])[None]
    torch.testing.assert_close(pair_means(x, packed, lead=0), expected)


def test_a_text_without_tokens_is_zero_and_no_error() -> None:
    packed = pack([[2, 3, 9, 3]], [[0, 0, 1, 1]])
    found = pair_means(torch.ones(4, 2), packed, lead=1)
    assert found.tolist() == [[[0.0, 0.0], [1.0, 1.0]]]


@torch.no_grad()
def test_the_formula() -> None:
    model = comparer()
    model.means.normal_(generator=torch.Generator().manual_seed(3))
    model.matrices.normal_(generator=torch.Generator().manual_seed(4))
    states = model.base.encoder(batch(), all_depths=True).hidden_states
    layer, expected = model.get_submodule("classifier"), []
    for first, (ids, types) in zip((0, 8), ROWS, strict=True):
        half = types.count(0)
        seen = []
        for state in (0, 1):
            rows = states[state][first : first + len(ids)]
            u, v = (
                (x.mean(0) - model.means[state]) @ model.matrices[state]
                for x in (rows[1 : half - 1], rows[half : len(ids) - 1])
            )
            u, v = u / u.norm(), v / v.norm()
            seen += [24**0.5 * (u - v).abs(), 24 * u * v]
        expected.append(layer(torch.cat(seen)))
    torch.testing.assert_close(model(batch()), torch.stack(expected), atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_depths_beyond_the_first_are_not_looked_at() -> None:
    model = comparer()
    before = model(batch())
    for block in (*model.base.encoder.attention[1:], *model.base.encoder.feed_forward[1:]):
        for parameter in block.parameters():
            parameter.zero_()
    assert torch.equal(model(batch()), before)
    model.base.encoder.feed_forward[0].output.weight.zero_()
    assert not torch.allclose(model(batch()), before)


def test_whitening_is_measured_for_each_state_on_both_texts() -> None:
    drawn = np.random.default_rng(1)
    ids = [np.array([2, *drawn.integers(5, 50, 4), 3, *drawn.integers(5, 50, 5), 3]) for _ in range(200)]
    types = [np.array([0] * 6 + [1] * 6, dtype=np.int8)] * 200
    data = Encoded(tuple(range(200)), ids, types, np.arange(201), None, 0)
    model = comparer()
    whiten(model, data)
    with torch.no_grad():
        x = model.vectors(data.packed(range(200)))
    for state in (0, 1):
        rows = x[:, state].flatten(0, 1).double()
        torch.testing.assert_close(model.means[state].double(), rows.mean(0), atol=1e-5, rtol=1e-4)
        z = (rows - model.means[state]) @ model.matrices[state].double()
        variances = torch.linalg.eigvalsh(torch.cov(rows.T, correction=0))
        left = variances / (variances + RIDGE * variances.mean())
        seen = torch.linalg.eigvalsh(torch.cov(z.T, correction=0))
        torch.testing.assert_close(seen, left.sort().values, atol=1e-3, rtol=1e-3)
    assert not torch.allclose(model.means[0], model.means[1])


WORDS = ["the", "house", "and", "he", "was", "old", "man", "of", "time", "said", "never", "good"]


def pairs(path: Path, count: int, seed: int) -> Path:
    """Two texts of the same words in another order, or of other words."""
    drawn = np.random.default_rng(seed)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["one", "two", "verdict"])
        for _ in range(count):
            first, same = drawn.permutation(WORDS)[:4], bool(drawn.integers(2))
            left = [word for word in WORDS if word not in first]
            second = drawn.permutation(first if same else left)[:4]
            writer.writerow([" ".join(first), " ".join(second), "same" if same else "other"])
    return path


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory, pretrained: Path) -> FinetuneResult:
    folder = tmp_path_factory.mktemp("compared")
    return albertine.finetune(
        pretrained,
        name="compared",
        output=folder,
        train=pairs(folder / "train.csv", 300, 1),
        dev=pairs(folder / "dev.csv", 100, 2),
        task={
            "text": "one",
            "pair": "two",
            "label": "verdict",
            "pooling": "compared",
            "max_length": 32,
        },
        training={"steps": 60, "learning_rate": 2e-3},
    )


def test_a_small_encoder_learns_to_compare(tuned: FinetuneResult) -> None:
    assert tuned.scores["accuracy"] > 0.9


def test_the_folder_answers_as_it_was_scored(tuned: FinetuneResult) -> None:
    assert albertine.evaluate(tuned.folder)["dev"]["accuracy"] == tuned.scores["accuracy"]
    rows = list(csv.DictReader((tuned.folder.parent / "dev.csv").open(encoding="utf-8")))
    answers = albertine.Predictor(tuned.model).classify([(row["one"], row["two"]) for row in rows])
    right = [
        max(chances, key=chances.__getitem__) == row["verdict"]
        for chances, row in zip(answers, rows, strict=True)
    ]
    assert np.mean(right) == pytest.approx(tuned.scores["accuracy"])


@pytest.mark.matrix
def test_its_graph_answers_as_the_folder(tuned: FinetuneResult, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    assert run(["export", str(tuned.model), str(tmp_path / "out"), "--packed"]) == 0
    rows = list(csv.DictReader((tuned.folder.parent / "dev.csv").open(encoding="utf-8")))
    pairs = [(row["one"], row["two"]) for row in rows] + [("", "man"), ("old man", "")]
    # The graph computes in float32, whatever the processor likes best.
    folder = albertine.Predictor(tuned.model, precision="float32").classify(pairs)
    graph = albertine.Predictor(tmp_path / "out").classify(pairs)
    for answer, expected in zip(graph, folder, strict=True):
        assert answer == pytest.approx(expected, abs=1e-5)


def test_it_takes_pairs_only(tuned: FinetuneResult, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["predict", "classify", str(tuned.model), "old man"]) == 2
    assert "compares two" in capsys.readouterr().err
    with pytest.raises(AlbertineError, match="compares two"):
        albertine.Predictor(tuned.model).classify([("old", "man"), "old man"])
    with pytest.raises(DataError, match="compares two"):
        open_run(tuned.folder, ["task.pair=null"])


def test_narrow_encoders_compare_pairs_by_default(tmp_path: Path, pretrained: Path) -> None:
    """Those whose classifier transformers has keep it; wide ones find out in one row what differs."""
    rotary = builders.config(positions="rotary")
    assert usual_pooling(rotary, pairs=True) == "compared" and usual_pooling(rotary) == "depths"
    wide = builders.config(positions="rotary", hidden_size=512)
    assert usual_pooling(wide, pairs=True) == "depths"
    assert usual_pooling(builders.config(), pairs=True) == "cls"
    tokenizer = albertine.load_tokenizer(pretrained)
    model = stand_in.rotary_model(tokenizer.vocab_size, seed=3)
    albertine.save(model, tokenizer, tmp_path / "rotary")
    for column, pooling in (("two", "compared"), (None, "depths")):
        found = albertine.finetune(
            tmp_path / "rotary",
            name=pooling,
            output=tmp_path,
            train=pairs(tmp_path / "train.csv", 20, 1),
            task={"text": "one", "pair": column, "label": "verdict", "max_length": 32},
            training={"steps": 1},
        )
        config = json.loads((found.model / "config.json").read_text(encoding="utf-8"))
        assert config["albertine"]["pooling"] == pooling


def test_single_texts_are_refused(tuned: FinetuneResult, pretrained: Path, tmp_path: Path) -> None:
    with pytest.raises(AlbertineError, match="has no pairs"):
        albertine.finetune(
            pretrained,
            name="single",
            output=tmp_path,
            train=tuned.folder.parent / "train.csv",
            task={"text": "one", "label": "verdict", "pooling": "compared"},
        )
    assert not (tmp_path / "single").exists()


@pytest.mark.parametrize(("column", "refused"), [("two", "one"), (None, "pair")], ids=["pairs", "single"])
def test_a_classifier_takes_as_many_texts_as_it_was_tuned_with(
    column: str | None,
    refused: str,
    pretrained: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = albertine.finetune(
        pretrained,
        name="asked",
        output=tmp_path,
        train=[{"one": "old man", "two": "man", "verdict": verdict} for verdict in ("same", "other")],
        task={"text": "one", "pair": column, "label": "verdict"},
        training={"steps": 1},
    )
    predictor, away = albertine.Predictor(found.model), shutil.copytree(found.model, tmp_path / "away")
    scored = [f"task.dev={pairs(tmp_path / 'dev.csv', 4, 1)}", "task.text=one", "task.label=verdict"]
    examples: dict[str, str | tuple[str, str]] = {"one": "old man", "pair": ("old man", "man")}
    for kind, texts in examples.items():
        evaluated = [*scored, *["task.pair=two"] * (kind == "pair")]
        if kind != refused:
            assert set(predictor.classify([texts])[0]) == {"same", "other"}
            assert len(evaluate_run(open_run(away, evaluated))[0].answers) == 4
            continue
        with pytest.raises(DataError, match=r"dev\.csv:2: .* was tuned with .*task\.pair"):
            open_run(away, evaluated)
        with pytest.raises(AlbertineError, match="was tuned with"):
            predictor.classify([texts])
        assert run(["predict", "classify", str(found.model), "old man" + "\tman" * (kind == "pair")]) == 2
        assert "text 1: " in (stderr := capsys.readouterr().err) and "was tuned with" in stderr
