"""Folders that sentence-transformers reads and writes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import albertine
from albertine.cli.app import run
from albertine.errors import ModelError
from albertine.interop.hub.upload import plan_upload
from albertine.interop.huggingface.folders import save_model
from albertine.interop.sentence_transformers import VectorSettings, read_vectors, sentence_files
from albertine.model.model import Model
from albertine.model.pooling import Pooling
from albertine.model.task_model import Classifier, Embedder, WhitenedEmbedder
from albertine.pretraining.initial_model import encoder_config
from albertine.pretraining.settings import ModelChoice
from albertine.tasks.predictor import Predictor
from albertine.tasks.whitened_start import whitening_files
from albertine.tokenizers.load import load_tokenizer
from albertine.tokenizers.wordpiece import WordPieceTokenizer
from tests.toy import MODEL

TEXTS = ["the old man said", "he was never of the house and the time was good", "", "good", "old " * 90]
WAYS: list[tuple[Pooling, bool]] = [("mean", False), ("mean", True), ("cls", False), ("cls", True)]


WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] the old man said he was never of house and time good"


@pytest.fixture(scope="module", params=["albert-tiny-zh", "bert-base-zh"])
def models(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Model, Any]:
    """A random ALBERT and a random BERT, and a tokenizer."""
    vocabulary = tmp_path_factory.mktemp("words") / "vocab.txt"
    vocabulary.write_text(WORDS.replace(" ", "\n") + "\n")
    tokenizer = load_tokenizer(vocabulary)
    change = {**MODEL, "initializer_range": 0.2, "max_position_embeddings": 64}
    config = encoder_config(ModelChoice(preset=request.param, change=change), tokenizer.vocab_size, 64)
    return Model(config, {"pooler"}, seed=3), tokenizer


def save(models: tuple[Model, Any], folder: Path, pooling: Pooling, normalize: bool) -> Path:
    model, tokenizer = models
    files = sentence_files(Embedder(model, pooling, normalize))
    extra_config = (
        {"task": "embed", "pooling": pooling, "normalize": normalize} if pooling == "depths" else {}
    )
    save_model(
        model,
        tokenizer,
        folder,
        extra_config={"albertine": extra_config} if extra_config else {},
        extra_files=files,
    )
    return folder


@pytest.mark.sample
@pytest.mark.parametrize(("pooling", "normalize"), WAYS)
def test_transformers_and_the_mask_give_the_same(
    models: tuple[Model, Any], tmp_path: Path, pooling: Pooling, normalize: bool
) -> None:
    from transformers import AutoModel, AutoTokenizer

    folder = save(models, tmp_path / "a folder", pooling, normalize)
    ours = Predictor(folder, precision="float32").embed(TEXTS)
    theirs = AutoModel.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    batch = tokenizer(TEXTS, padding=True, truncation=True, max_length=64, return_tensors="pt")
    with torch.no_grad():
        hidden = theirs(**batch).last_hidden_state
    mask = batch["attention_mask"][:, :, None]
    vectors = (hidden * mask).sum(1) / mask.sum(1) if pooling == "mean" else hidden[:, 0]
    if normalize:
        vectors = vectors / vectors.norm(dim=1, keepdim=True)
    np.testing.assert_allclose(ours, vectors.numpy(), atol=1e-5)
    assert read_vectors(folder) == VectorSettings(pooling, normalize, 64)


@pytest.mark.sample
@pytest.mark.parametrize(("pooling", "normalize"), WAYS)
def test_sentence_transformers_gives_the_same(
    models: tuple[Model, Any], tmp_path: Path, pooling: Pooling, normalize: bool
) -> None:
    """Both ways: it reads our folder, and we read the one that it writes."""
    package = pytest.importorskip("sentence_transformers")
    folder = save(models, tmp_path / "a folder", pooling, normalize)
    theirs = package.SentenceTransformer(str(folder), device="cpu")
    expected = theirs.encode(TEXTS)
    np.testing.assert_allclose(Predictor(folder, precision="float32").embed(TEXTS), expected, atol=1e-5)
    theirs.max_seq_length = 7
    theirs.save(str(tmp_path / "theirs"))
    back = Predictor(tmp_path / "theirs", precision="float32")
    np.testing.assert_allclose(back.embed(TEXTS), theirs.encode(TEXTS), atol=1e-5)
    assert back.embedder(TEXTS).cut == 2 and back.embedder.limit == 7


def test_the_files(models: tuple[Model, Any]) -> None:
    files = {
        name: json.loads(text) for name, text in sentence_files(Embedder(models[0], "cls", True)).items()
    }
    assert set(files) == {
        "modules.json",
        "1_Pooling/config.json",
        "sentence_bert_config.json",
        "config_sentence_transformers.json",
    }
    kinds = [(m["idx"], m["path"], m["type"].rpartition(".")[2]) for m in files["modules.json"]]
    assert kinds == [(0, "", "Transformer"), (1, "1_Pooling", "Pooling"), (2, "2_Normalize", "Normalize")]
    pooling = files["1_Pooling/config.json"]
    assert [name for name, on in pooling.items() if on is True] == [
        "pooling_mode_cls_token",
        "include_prompt",
    ]
    assert pooling["word_embedding_dimension"] == 32
    assert files["sentence_bert_config.json"]["max_seq_length"] == 64
    assert sentence_files(Classifier(models[0], 2)) == {}


def test_a_folder_is_replaced_whole(models: tuple[Model, Any], tmp_path: Path) -> None:
    folder = save(models, tmp_path / "x", "mean", True)
    save(models, folder, "cls", False)
    assert read_vectors(folder) == VectorSettings("cls", False, 64)


@pytest.mark.parametrize("form", ["ours", "theirs"])
def test_vectors_stay_what_they_are(models: tuple[Model, Any], tmp_path: Path, form: str) -> None:
    """Through `convert`, `prune` and `albertine.save`; other programs have a limit of tokens elsewhere."""
    folder = save(models, tmp_path / "a folder", "cls", True)
    if form == "theirs":
        package = pytest.importorskip("sentence_transformers")
        theirs = package.SentenceTransformer(str(folder), device="cpu")
        theirs.max_seq_length = 7
        theirs.save(str(folder := tmp_path / "theirs"))
    wanted = Predictor(folder, precision="float32").embed(TEXTS)
    text = tmp_path / "text.txt"
    text.write_text("\n".join(TEXTS) + "\n")
    assert run(["convert", str(folder), str(tmp_path / "converted"), "--to", "albertine"]) == 0
    assert run(["prune", str(folder), str(text), "-o", str(tmp_path / "pruned"), "--workers", "1"]) == 0
    albertine.save(albertine.load(folder), albertine.load_tokenizer(folder), folder)
    for name in ("converted", "pruned", folder.name):
        found = Predictor(tmp_path / name, precision="float32").embed(TEXTS)
        np.testing.assert_allclose(found, wanted, atol=1e-6, err_msg=name)


def test_a_layer_behind_the_pooling_goes_where_its_whitening_goes(
    models: tuple[Model, Any], tmp_path: Path
) -> None:
    """To the hub, and through `convert`; it is not valid for other weights, and is not copied with them."""
    package = pytest.importorskip("sentence_transformers")
    model, tokenizer = models
    tuned = WhitenedEmbedder(model, normalize=True)
    tuned.mean += 0.25
    files = sentence_files(tuned) | whitening_files(tuned)
    save_model(model, tokenizer, tmp_path / "m", extra_files=files)
    (tmp_path / "m" / "README.md").write_text("---\nlicense: mit\n---\n")
    for name, _ in plan_upload(tmp_path / "m").files:
        (tmp_path / "sent" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(tmp_path / "m" / name, tmp_path / "sent" / name)
    assert run(["convert", str(tmp_path / "m"), str(tmp_path / "converted")]) == 0
    wanted = Predictor(tmp_path / "m", precision="float32").embed(TEXTS)
    for name in ("sent", "converted"):
        found = package.SentenceTransformer(str(tmp_path / name), device="cpu").encode(TEXTS)
        np.testing.assert_allclose(found, wanted, atol=1e-5, err_msg=name)
    albertine.save(Model(model.config, model.heads, seed=4), tokenizer, tmp_path / "m")
    assert read_vectors(tmp_path / "m") == VectorSettings()
    assert not (tmp_path / "m" / "2_Dense").exists() and not (tmp_path / "m" / "modules.json").exists()


@pytest.mark.parametrize("way", ["convert", "save"])
def test_an_encoder_alone_does_not_average_all_layers(
    models: tuple[Model, Any], tmp_path: Path, way: str
) -> None:
    """Its config.json no longer states that task, without which the module is not read."""
    folder, out = save(models, tmp_path / "m", "depths", True), tmp_path / "out"
    assert (folder / "modules.json").is_file()
    if way == "convert":
        assert run(["convert", str(folder), str(out), "--without-head"]) == 0
    else:
        out = folder
        albertine.save(albertine.load(folder), albertine.load_tokenizer(folder), out)
    wanted = Predictor(folder, precision="float32").embed(TEXTS, pooling="mean", normalize=False)
    np.testing.assert_allclose(Predictor(out, precision="float32").embed(TEXTS), wanted, atol=1e-6)
    assert not (out / "modules.json").exists() and not (out / "1_WeightedLayerPooling").exists()


def written(folder: Path, **files: Any) -> Path:
    """Files as sentence-transformers writes them, changed by the arguments; only the reading is tested."""
    trees = {
        "modules.json": [
            {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
            {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
        ],
        "1_Pooling/config.json": {"word_embedding_dimension": 32, "pooling_mode_cls_token": False},
        "sentence_bert_config.json": {"max_seq_length": 20, "do_lower_case": True},
    } | {name.replace("__", "/") + ".json": tree for name, tree in files.items()}
    for name, tree in trees.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(tree))
    return folder


@pytest.mark.parametrize("lower", [True, False])
def test_a_folder_may_require_lowercased_texts(tmp_path: Path, lower: bool) -> None:
    tokenizer = WordPieceTokenizer([*WORDS.split(), "OLD"], lower=False)
    config = encoder_config(
        ModelChoice(preset="bert-base-zh", change={**MODEL, "initializer_range": 0.2}),
        tokenizer.vocab_size,
        32,
    )
    save_model(Model(config, {"pooler"}, seed=3), tokenizer, tmp_path)
    written(tmp_path, sentence_bert_config={"max_seq_length": 20, "do_lower_case": lower})
    high, low = Predictor(tmp_path, precision="float32").embed(["the OLD man", "the old man"])
    assert np.array_equal(high, low) is lower


@pytest.mark.parametrize(
    "stored",
    [
        {"text": {"max_length": 6, "padding": "max_length"}},
        {"text": {"max_length": 40}, "common": {"max_length": 7}},
    ],
)
def test_how_the_tokenizer_is_called_is_heeded(
    models: tuple[Model, Any], tmp_path: Path, stored: dict[str, Any]
) -> None:
    """As version 6 writes it. Catches: a limit that is passed over, or that of texts before that of all; one
    that a copy forgets."""
    package = pytest.importorskip("sentence_transformers")
    theirs = package.SentenceTransformer(str(save(models, tmp_path / "first", "mean", False)), device="cpu")
    theirs[0].processing_kwargs = stored
    theirs.save(str(tmp_path / "theirs"))
    wanted = package.SentenceTransformer(str(tmp_path / "theirs"), device="cpu").encode(TEXTS)
    assert run(["convert", str(tmp_path / "theirs"), str(tmp_path / "copy")]) == 0
    for name in ("theirs", "copy"):
        found = Predictor(tmp_path / name, precision="float32").embed(TEXTS)
        np.testing.assert_allclose(found, wanted, atol=1e-5, err_msg=name)


def module(*kinds: str, path: str = "1_Pooling") -> list[dict[str, Any]]:
    paths = ["", path, "2_Normalize"]
    return [
        {"idx": i, "path": p, "type": f"a.b.{k}"} for i, (k, p) in enumerate(zip(kinds, paths, strict=False))
    ]


def test_the_settings_of_a_folder_are_honoured(tmp_path: Path) -> None:
    assert read_vectors(tmp_path) == VectorSettings("mean", False, None, False)
    assert read_vectors(written(tmp_path)) == VectorSettings("mean", False, 20, True)
    three = module("Transformer", "Pooling", "Normalize")
    changes = {"1_Pooling__config": {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}}
    assert read_vectors(written(tmp_path, modules=three, **changes)) == VectorSettings("cls", True, 20, True)
    newest = {"1_Pooling__config": {"pooling_mode": "cls"}, "sentence_bert_config": {}}
    assert read_vectors(written(tmp_path, **newest)) == VectorSettings("cls", False, None, False)
    assert read_vectors(written(tmp_path, **newest, tokenizer_config={"model_max_length": 9})).max_length == 9
    endless = {"model_max_length": 1e30}
    assert (read_vectors(written(tmp_path, **newest, tokenizer_config=endless)).max_length or 0) > 1e6
    for cut, length in ((True, 20), ("longest_first", 20), (False, None), ("do_not_truncate", None)):
        tokenizer_settings = {
            "max_seq_length": 20,
            "processing_kwargs": {"text": {"truncation": cut}, "image": {"x": 1}},
        }
        assert read_vectors(written(tmp_path, sentence_bert_config=tokenizer_settings)).max_length == length


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            {"1_Pooling__config": {"pooling_mode_max_tokens": True}},
            "pools by pooling_mode_max_tokens",
        ),
        ({"1_Pooling__config": {"pooling_mode": "lasttoken"}}, "pools by lasttoken"),
        ({"1_Pooling__config": {"pooling_mode": ["cls", "mean"]}}, "pools by cls and mean"),
        (
            {"modules": module("Transformer", "Pooling", "Dense")},
            "has a layer behind its pooling",
        ),
        ({"modules": module("Transformer")}, "names the modules Transformer;"),
        ({"modules": module("Transformer", "Pooling", path="../other")}, "expects its modules in"),
        ({"modules": {"a": 1}}, r"modules\.json: is not a list of modules"),
        ({"sentence_bert_config": {"max_seq_length": "long"}}, "max_seq_length of 'long'"),
        (
            {"sentence_bert_config": {"processing_kwargs": {"text": {"add_special_tokens": False}}}},
            "calls the tokenizer with add_special_tokens",
        ),
        (
            {"sentence_bert_config": {"processing_kwargs": {"common": {"truncation": "only_second"}}}},
            "calls the tokenizer with truncation",
        ),
        ({"sentence_bert_config": {"processing_kwargs": {"text": 7}}}, "has processing_kwargs of"),
        ({"sentence_bert_config": {"processing_kwargs": {"text": {"max_length": "a"}}}}, "max_length of 'a'"),
        ({"config_sentence_transformers": {"default_prompt_name": "query"}}, "puts the prompt `query`"),
        ({"config_sentence_transformers": {"truncate_dim": 8}}, "cuts every vector to its first 8 numbers"),
    ],
)
def test_what_cannot_be_computed_is_refused(tmp_path: Path, files: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        read_vectors(written(tmp_path, **files))


def test_the_older_names_of_the_file_count(tmp_path: Path) -> None:
    folder = written(tmp_path)
    (folder / "sentence_bert_config.json").rename(folder / "sentence_albert_config.json")
    assert read_vectors(folder) == VectorSettings("mean", False, 20, True)
