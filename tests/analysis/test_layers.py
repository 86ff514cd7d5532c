"""Statistics of layers: against transformers' hidden states, and values by hand; every kind of encoder."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

import albertine as package
from albertine.analysis.layer_figures import panels, table
from albertine.analysis.layers import (
    Estimate,
    LayerStatistics,
    effective_rank,
    layer_statistics,
    layer_statistics_of,
    linear_cka,
)
from albertine.analysis.names import model_labels
from albertine.cli.analyze_options import models_and_texts
from albertine.cli.app import run
from albertine.errors import DataError, NotFinite
from albertine.model.sharing import SharingPlan
from albertine.tokenizers.base import Tokenizer
from albertine.tokenizers.load import load_tokenizer
from tests.analysis.test_html_report import Elements
from tests.model import builders
from tests.toy import toy_vocabulary

TEXTS = [
    "The weather is fine today.",
    "We walk to the park, and then home again.",
    "Nobody was there.",
    "She had read the letter twice before he came.",
]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return package.load_tokenizer("albertine-mini-en")


@pytest.fixture(scope="module")
def shared(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A transformers' folder of an ALBERT with random weights."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("models") / "random-albert"
    config = transformers.AlbertConfig(
        vocab_size=tokenizer.vocab_size,
        embedding_size=16,
        hidden_size=32,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=64,
        initializer_range=0.2,
    )
    transformers.AlbertModel(config).eval().save_pretrained(folder)
    tokenizer.save(folder)
    return folder


def states_of_transformers(folder: Path, tokenizer: Tokenizer) -> list[np.ndarray]:
    """(layers + 1, tokens, H) of every text."""
    model = transformers.AutoModel.from_pretrained(folder).eval()
    found = []
    for text in TEXTS:
        ids, _ = tokenizer.layout(tokenizer.encode(text))
        with torch.no_grad():
            states = model(torch.tensor([ids]), output_hidden_states=True).hidden_states
        found.append(torch.cat(states).double().numpy())
    return found


def test_numbers_are_those_of_transformers_hidden_states(shared: Path, tokenizer: Tokenizer) -> None:
    """By the formulas, from states that Albertine did not compute."""
    found = layer_statistics_of(shared, TEXTS)
    states = states_of_transformers(shared, tokenizer)
    norm = np.linalg.norm

    def cosine(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return (a * b).sum(-1) / norm(a, axis=-1) / norm(b, axis=-1)

    def degrees(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.degrees(np.arccos(np.clip(cosine(a, b), -1, 1)))

    def check(name: str, of_text: Callable[[np.ndarray], np.ndarray]) -> None:
        values = np.stack([of_text(x) for x in states])
        half = 3.182 * values.std(0, ddof=1) / math.sqrt(len(TEXTS))
        estimate = getattr(found, name)
        assert estimate.mean == pytest.approx(values.mean(0), rel=1e-4, abs=1e-4), name
        assert estimate.high - estimate.mean == pytest.approx(half, rel=1e-3, abs=1e-4), name

    check("distance", lambda x: norm(x[1:] - x[:-1], axis=2).mean(1))
    check("cosine", lambda x: cosine(x[1:], x[:-1]).mean(1))
    check("angle", lambda x: degrees(x[1:], x[:-1]).mean(1))
    check("norm", lambda x: norm(x, axis=2).mean(1))
    check("curvature", lambda x: degrees(np.diff(x, axis=0)[1:], np.diff(x, axis=0)[:-1]).mean(1))
    check("effective_rank", lambda x: np.array([rank_by_hand(y) for y in x]))
    for layer in range(5):
        rows = [x[layer, 1:-1] for x in states]  # without [CLS] and [SEP]
        pairs = [cosine(a[:, None], b[None]) for i, a in enumerate(rows) for b in rows[i + 1 :]]
        expected = np.concatenate([p.ravel() for p in pairs]).mean()
        assert found.anisotropy.mean[layer] == pytest.approx(expected, abs=1e-4)
        for other in range(5):
            x, y = (np.concatenate([s[i] for s in states]) for i in (layer, other))
            x, y = x - x.mean(0), y - y.mean(0)
            cka = norm(y.T @ x) ** 2 / norm(x.T @ x) / norm(y.T @ y)
            assert found.cka[layer, other] == pytest.approx(cka, abs=1e-4)
    assert (found.texts, found.layers, found.cka_tokens) == (4, 4, found.tokens)


def rank_by_hand(matrix: np.ndarray) -> float:
    values = np.linalg.svd(matrix, compute_uv=False)
    shares = values / values.sum()
    return float(np.exp(-(shares * np.log(shares)).sum()))


def test_effective_rank_of_matrices_with_a_known_one() -> None:
    assert effective_rank(torch.eye(5)) == pytest.approx(5)
    assert effective_rank(torch.ones(4, 3)) == pytest.approx(1, abs=1e-5)
    assert effective_rank(torch.diag(torch.tensor([3.0, 1.0]))) == pytest.approx(
        math.exp(-(0.75 * math.log(0.75) + 0.25 * math.log(0.25)))
    )
    assert math.isnan(effective_rank(torch.zeros(3, 3)))


def test_cka_ignores_rotation_scale_and_a_constant() -> None:
    torch.manual_seed(0)
    x = torch.randn(40, 6)
    rotation = torch.linalg.qr(torch.randn(6, 6)).Q
    found = linear_cka(torch.stack([x, 3 * x @ rotation + 2, torch.randn(40, 6)]))
    assert found[0, 1] == pytest.approx(1, abs=1e-5) and found[0, 2] < 0.6
    assert np.diag(found) == pytest.approx(np.ones(3)) and found == pytest.approx(found.T)


def test_a_straight_path_and_one_back_and_forth(tokenizer: Tokenizer) -> None:
    """An encoder whose layers add a constant: the distance is its length, the curvature 0 or 180 degrees."""
    model = package.load("albertine-mini-en")
    step = torch.full((model.config.hidden_size,), 0.5)
    for sign, degrees in ((1, 0.0), (-1, 180.0)):
        layer = lambda d, x, *_, sign=sign, **__: x + step * sign**d  # noqa: E731
        model.encoder.run_layer = layer  # type: ignore[method-assign]
        found = layer_statistics(model, tokenizer, TEXTS)
        assert found.distance.mean == pytest.approx(np.full(found.layers, float(step.norm())), rel=1e-5)
        assert found.curvature.mean == pytest.approx(np.full(found.layers - 1, degrees), abs=0.1)


def test_the_interval_is_that_of_student() -> None:
    values = np.array([[1.0, 5.0], [2.0, 5.0], [4.0, 5.0]])
    found = Estimate.of(values)
    assert found.high[0] - found.mean[0] == pytest.approx(4.3027 * values[:, 0].std(ddof=1) / math.sqrt(3))
    assert found.low[1] == found.mean[1] == found.high[1] == 5
    assert np.isnan(Estimate.of(values[:1]).low).all()


@pytest.mark.parametrize(
    "changes",
    [
        {"plan": SharingPlan.unshared(3)},
        {"plan": SharingPlan.grouped(4, 2)},
        {"plan": SharingPlan.attention_only(3)},
        {"norm": "pre"},
        {"input_injection": True, "solver": "anderson"},
        {"step_signal": "learned", "halting": "basic"},
        {"plan": SharingPlan.shared(1)},
    ],
    ids=["unshared", "grouped", "attention", "pre-norm", "fixed point", "halting", "one layer"],
)
def test_every_kind_of_encoder(changes: dict[str, object], tokenizer: Tokenizer) -> None:
    model = builders.model(vocab_size=tokenizer.vocab_size, max_position_embeddings=64, **changes)
    before = [name for name, _ in model.named_modules()]
    found = layer_statistics(model, tokenizer, TEXTS)
    layers = model.config.num_hidden_layers
    assert found.distance.mean.shape == (layers,) and found.cka.shape == (layers + 1, layers + 1)
    assert found.zero_start is ("solver" in changes)
    first = int(found.zero_start)  # layer 1 of a start at zeros has no input to compare with
    for name in ("distance", "cosine", "angle"):
        mean = getattr(found, name).mean
        assert np.isnan(mean[:first]).all() and np.isfinite(mean[first:]).all()
    assert found.curvature.mean.shape == (layers - 1,)
    assert [name for name, _ in model.named_modules()] == before
    rows = table(found).rows
    assert len(rows) == layers + 1 and ("zeros" in str(rows[0][0])) is found.zero_start
    (distance,) = panels([found], ["distance"])
    at = [x for x, _ in distance.curves["model"]]
    assert at == list(range(1 + first, layers + 1)) and list(distance.bands) == ["model"]


def test_a_final_norm_is_no_part_of_the_last_layer(tokenizer: Tokenizer) -> None:
    model = builders.model(vocab_size=tokenizer.vocab_size, max_position_embeddings=64, norm="pre")
    found = layer_statistics(model, tokenizer, TEXTS)
    ids = [tokenizer.layout(one)[0] for one in tokenizer.encode_batch(TEXTS)]
    norms: list[float] = []
    own = model.encoder.final_norm
    assert own is not None
    with torch.no_grad():
        for one in ids:
            rows = len(one)  # a pass may have rows of padding after these
            hook = own.register_forward_pre_hook(
                lambda _, inputs, rows=rows: norms.append(float(inputs[0][:rows].norm(dim=1).mean()))
            )
            model(torch.tensor([one]))
            hook.remove()
    assert found.norm.mean[-1] == pytest.approx(sum(norms) / len(norms), rel=1e-4)


def test_xlnet_and_bert_folders(tokenizer: Tokenizer, tmp_path: Path) -> None:
    torch.manual_seed(1)
    last = load_tokenizer(toy_vocabulary(tmp_path, 60_000, cls_last=True)[1])
    xlnet = transformers.XLNetModel(
        transformers.XLNetConfig(vocab_size=last.vocab_size, d_model=32, n_layer=2, n_head=4, d_inner=64)
    )
    bert = transformers.BertModel(
        transformers.BertConfig(
            vocab_size=tokenizer.vocab_size,
            hidden_size=32,
            num_hidden_layers=3,
            num_attention_heads=4,
            intermediate_size=64,
        )
    )
    for name, model, its_own, layers in (("xlnet", xlnet, last, 2), ("bert", bert, tokenizer, 3)):
        model.eval().save_pretrained(tmp_path / name)
        its_own.save(tmp_path / name)
        assert layer_statistics_of(tmp_path / name, TEXTS).layers == layers


def test_batches_do_not_change_the_numbers(
    shared: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = layer_statistics_of(shared, TEXTS).as_dict()
    monkeypatch.setattr("albertine.analysis.layers.TOKENS_PER_PASS", 10)
    parts = layer_statistics_of(shared, TEXTS).as_dict()
    for name in ("distance", "anisotropy", "effective_rank"):
        assert parts[name]["mean"] == pytest.approx(whole[name]["mean"], rel=1e-5)
        assert parts[name]["high"] == pytest.approx(whole[name]["high"], rel=1e-4)
    assert np.array(parts["cka"]) == pytest.approx(np.array(whole["cka"]), abs=1e-5)


def test_one_text_has_no_interval_and_no_anisotropy(shared: Path) -> None:
    found = layer_statistics_of(shared, TEXTS[:1])
    assert np.isnan(found.distance.low).all() and np.isnan(found.anisotropy.mean).all()
    rows = table(found).rows
    assert "±" not in str(rows) and rows[1][5] == ""
    assert {panel.y for panel in panels([found])} >= {"L2 norm of the states"}
    assert not any(panel.bands for panel in panels([found]))


def test_bad_texts_and_weights(shared: Path, tokenizer: Tokenizer) -> None:
    with pytest.raises(DataError, match="no text"):
        layer_statistics_of(shared, [])
    model = package.load(shared)
    with torch.no_grad():
        model.encoder.feed_forward[0].output.weight.fill_(math.nan)
    with pytest.raises(NotFinite, match="text 1"):
        layer_statistics(model, tokenizer, TEXTS)


def test_names_of_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = [tmp_path / "a" / "run" / "final", tmp_path / "b" / "run" / "best", tmp_path / "c" / "other"]
    folders.append(tmp_path / "c" / "other" / "checkpoints" / "step-20")
    for folder in folders:
        folder.mkdir(parents=True)
    assert model_labels([folders[0]]) == ["run"]
    assert model_labels(folders[:2]) == ["a/run", "b/run"]
    assert model_labels([folders[0], folders[2], folders[3]]) == ["run", "other", "other, step-20"]
    assert model_labels(["albertine-mini-en", "owner/name"]) == ["albertine-mini-en", "owner/name"]
    monkeypatch.chdir(folders[2])
    assert model_labels(["."]) == ["other"]


@pytest.mark.pictures
def test_the_command(shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("\n\n".join(TEXTS), encoding="utf-8")
    figure, report = tmp_path / "out" / "layers.svg", tmp_path / "out" / "layers.html"
    models = [str(shared), "albertine-mini-en"]
    arguments = ["analyze", "layers", *models, "--texts", str(texts)]
    assert run([*arguments, "--plot", str(figure), "--html", str(report)]) == 0
    out = capsys.readouterr().out
    assert "random-albert" in out and "4 texts" in out and str(tmp_path) not in out
    drawn = figure.read_text(encoding="utf-8")
    assert ">random-albert<" in drawn and ">L2 distance, input to output<" in drawn
    text = report.read_text(encoding="utf-8")
    assert len([tag for tag, _ in Elements(text).found if tag == "svg"]) == 3 and str(tmp_path) not in text
    assert run([*arguments, "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert first["model"] == "random-albert" and len(first["distance"]["mean"]) == 4
    assert second["model"] == "albertine-mini-en"
    # Texts as words are the same texts.
    assert run(["analyze", "layers", str(shared), *TEXTS, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["distance"] == first["distance"]


def test_the_command_refuses_before_it_computes(
    shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object, **__: object) -> LayerStatistics:
        pytest.fail("computed")

    monkeypatch.setattr("albertine.analysis.layers.layer_statistics_of", never)
    (tmp_path / "file").write_text("x")
    for option, name, message in (
        ("--plot", "x.txt", "is not the name of a PNG or SVG file"),
        ("--plot", "file/x.png", "cannot be written"),
        ("--html", "x.txt", "is not the name of an HTML file"),
        ("--html", "file/x.html", "cannot be written"),
        ("--texts", "absent.txt", "there is no such file"),
    ):
        given = ["analyze", "layers", str(shared), *(TEXTS if option != "--texts" else ())]
        assert run([*given, option, str(tmp_path / name)]) == 2
        assert message in capsys.readouterr().err
    assert run(["analyze", "layers", "A text without a model."]) == 2
    assert "name a model" in capsys.readouterr().err


def test_which_words_are_texts(
    shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my models").mkdir()
    texts = ["The 24/7 shop was open.", "价格涨了1/4。"]
    assert models_and_texts([str(shared), *texts]) == ([str(shared)], texts)
    for missing in ("my models/absent", "./no such", "word"):
        assert run(["analyze", "layers", str(shared), missing]) == 2
        message = " ".join(capsys.readouterr().err.split())
        assert "is neither a folder nor a released model" in message and "--texts FILE" in message


def test_long_texts_lose_their_end_with_a_warning(shared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    long = "a word " * 100
    assert run(["analyze", "layers", str(shared), long, "--json"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)[0]
    assert (found["tokens"], found["cut"]) == (64, 1)  # the positions of the model
    assert "1 texts were too long" in err
