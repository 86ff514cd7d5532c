"""What we save works in transformers and sentence-transformers as anything of theirs does: auto classes,
pipelines and SentenceTransformer give our answers to real text in two languages.

`make test-oldest` runs this file again under the oldest releases that are supported (oldest.txt).
"""

from __future__ import annotations

import json
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from transformers.pipelines import SUPPORTED_TASKS

import albertine
from albertine.cli.app import run
from albertine.core.batch import from_padded
from albertine.errors import ModelError
from albertine.export.source_model import opened
from albertine.interop.exported_folder import ExportedFolder
from albertine.interop.heads import Kind, Task, head_config, read_classifier
from albertine.interop.huggingface.config import model_type
from albertine.interop.huggingface.folders import save_model
from albertine.interop.sentence_transformers import sentence_files
from albertine.model.model import Model
from albertine.model.sharing import SharingPlan
from albertine.model.task_model import Classifier, Embedder, TaskModel
from albertine.tasks.predictor import Predictor
from albertine.tokenizers.base import Tokenizer
from albertine.tokenizers.train import train_sentencepiece
from tests.interop.test_modernbert import BLOCK
from tests.interop.test_xlnet import our_model
from tests.model import builders

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

BOUND = 1e-5
RELEASED = {"en": "albertine-mini-en", "zh": "albertine-mini-zh"}
"""Whose vocabularies are used: SentencePiece and WordPiece."""
TEXTS = {
    "en": ["He played for the national football team.", "It isn't “late” 2,019 times.", "naïve café\tA"],
    "zh": ["皇帝下诏任命他为大将。", "北京 is 中国的首都，2019年。", "好"],
}
QUESTIONS = {
    "en": ("Who played?", "The old man sat in the house and the king of France played there."),
    "zh": ("谁在北京？", "皇帝任命他为大将，他在北京住了十年。"),
}
KINDS: dict[str, tuple[SharingPlan, dict[str, Any]]] = {
    "albert": (SharingPlan.shared(2), {}),
    "bert": (SharingPlan.unshared(2), {"embedding_size": 24}),
    "roformer": (SharingPlan.unshared(2), {"positions": "rotary", "hidden_act": "gelu"}),
    "modernbert": (SharingPlan.unshared(2), {"embedding_size": 24, **BLOCK, "rotary_base": 1e4}),
}
POOLED = ("albert", "bert")
every_kind = pytest.mark.parametrize("kind", KINDS)
tagging_kinds = pytest.mark.parametrize("kind", [*POOLED, "roformer"])
"""ModernBERT's heads for tasks have a layer more than ours."""
both = pytest.mark.parametrize("language", RELEASED)


@pytest.fixture(scope="module")
def tokenizers() -> dict[str, Tokenizer]:
    return {language: albertine.load_tokenizer(name) for language, name in RELEASED.items()}


def encoder(kind: str, tokenizer: Tokenizer, heads: set[str]) -> Model:
    plan, change = KINDS[kind]
    size: Any = {"vocab_size": tokenizer.vocab_size, "max_position_embeddings": 64}
    model = Model(builders.config(plan, **(size | change)), heads, seed=5).eval()
    assert model_type(model.config) == kind
    return model


def tuned(
    folder: Path, tokenizer: Tokenizer, head: TaskModel, task: Task, names: tuple[str, ...], kind: Kind | None
) -> Path:
    extra_config = head_config(model_type(head.base.config), task, 0.1, names=names, kind=kind)
    save_model(head.base, tokenizer, folder, extra_tensors=head.head, extra_config=extra_config)
    return folder


def pipeline(task: str, folder: Path, **how: Any) -> Callable[..., Any]:
    made: Callable[..., Any] = transformers.pipeline(task, model=str(folder), device="cpu", **how)
    return made


@pytest.mark.sample(4)
@both
@every_kind
def test_tokenizer_encoder_and_features(
    kind: str, language: str, tokenizers: dict[str, Tokenizer], tmp_path: Path
) -> None:
    ours, texts = tokenizers[language], TEXTS[language]
    model = encoder(kind, ours, {"pooler"} if kind in POOLED else set())
    albertine.save(model, ours, tmp_path / "m")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "m")
    fields = ours(texts, texts[::-1], return_tensors="pt")
    batch = theirs(texts, texts[::-1], padding=True, return_tensors="pt")
    # ModernBERT knows no segments, and would not take them.
    assert fields.keys() - batch.keys() == ({"token_type_ids"} if kind == "modernbert" else set())
    for name, x in batch.items():
        assert torch.equal(torch.as_tensor(fields[name]), x), name
    base = transformers.AutoModel.from_pretrained(tmp_path / "m").eval()
    real = batch["attention_mask"].bool()
    with torch.no_grad():
        out, own = base(**batch), model(*fields.values())
        assert (out.last_hidden_state - own.last_hidden_state)[real].abs().max() <= BOUND
        if own.pooler_output is not None:
            assert (out.pooler_output - own.pooler_output).abs().max() <= BOUND
    one = pipeline("feature-extraction", tmp_path / "m")(texts[0], return_tensors=True)[0]
    alone = model(*ours(texts[0], return_tensors="pt").values()).last_hidden_state[0]
    assert one.shape == alone.shape and (one - alone).abs().max() <= BOUND


@pytest.mark.sample(3)
@every_kind
@pytest.mark.parametrize("positions", [64, 1024])
def test_texts_are_cut_at_what_the_model_reads(
    kind: str, positions: int, tokenizers: dict[str, Tokenizer], tmp_path: Path
) -> None:
    """Catches: 512 tokens for every model, more than a short one reads, and half of what a long one does."""
    ours, text = tokenizers["en"], "He played there. " * 400
    base = encoder(kind, ours, set())
    model = Model(replace(base.config, max_position_embeddings=positions), set(), seed=5)
    albertine.save(model, ours, tmp_path)
    cut = {"truncation": True}
    features = pipeline("feature-extraction", tmp_path, tokenize_kwargs=cut)(text, return_tensors=True)[0]
    assert len(features) == positions


@pytest.mark.sample(4)
@both
@every_kind
def test_fill_mask(kind: str, language: str, tokenizers: dict[str, Tokenizer], tmp_path: Path) -> None:
    model = encoder(kind, tokenizers[language], {"mlm"})
    albertine.save(model, tokenizers[language], tmp_path / "m")
    text = {"en": "He played for the [MASK] team.", "zh": "他为大将[MASK]。"}[language]
    found = pipeline("fill-mask", tmp_path / "m", top_k=3)(text)
    own = Predictor(tmp_path / "m", precision="float32").fill_mask(text, top_k=3)[0]
    assert [one["token"] for one in found] == [one.token_id for one in own]
    assert [one["score"] for one in found] == pytest.approx([one.probability for one in own], rel=5e-3)


@pytest.mark.sample(3)
@pytest.mark.parametrize("how", ["single", "multi", "score"])
@pytest.mark.parametrize(("kind", "language"), [("albert", "zh"), ("bert", "en")])
def test_text_classification(
    kind: str, how: Kind, language: str, tokenizers: dict[str, Tokenizer], tmp_path: Path
) -> None:
    ours = tokenizers[language]
    names = ("score",) if how == "score" else ("good", "bad", "neither")
    head = Classifier(encoder(kind, ours, {"pooler"}), len(names), seed=2).eval()
    folder = tuned(tmp_path / "m", ours, head, "classify", names, how)
    found = pipeline("text-classification", folder)(TEXTS[language], top_k=None)
    own = Predictor(folder, precision="float32").classify(TEXTS[language])
    scores = [{one["label"]: one["score"] for one in row} for row in found]
    assert scores == [pytest.approx(row, abs=BOUND) for row in own]


IDENTITY, SIGMOID = "torch.nn.modules.linear.Identity", "torch.nn.modules.activation.Sigmoid"
NAMED: dict[str, dict[str, Any]] = {
    "nothing": {},
    "identity": {"sentence_transformers": {"activation_fn": IDENTITY, "version": "5.0.0"}},
    "identity before 4.0": {"sbert_ce_default_activation_function": IDENTITY},
    "sigmoid": {"sentence_transformers": {"activation_fn": SIGMOID}, "problem_type": "regression"},
    "regression": {"problem_type": "regression", "sentence_transformers": {"activation_fn": IDENTITY}},
    "not trusted": {"sentence_transformers": {"activation_fn": "somebody.Identity"}},
}
"""What the config.json of a cross-encoder states of its score; "regression" is what ours state."""


@pytest.mark.sample
@pytest.mark.parametrize("activation", NAMED)
@pytest.mark.parametrize(("kind", "layout"), [("albert", "google"), ("bert", "bert4keras")])
def test_cross_encoders(
    kind: str, layout: str, activation: str, tokenizers: dict[str, Tokenizer], tmp_path: Path
) -> None:
    """Of a folder of others, copied and exported too. Catches: logits where everyone else has their sigmoid,
    a sigmoid where the folder names another function, either forgotten by a copy."""
    from sentence_transformers import CrossEncoder

    ours, folder = tokenizers["zh"], tmp_path / "m"
    head = Classifier(encoder(kind, ours, {"pooler"}), 1, seed=2).eval()
    with torch.no_grad():
        head.head["classifier.bias"].fill_(2.5)  # far from what is the same under a sigmoid
    tuned(folder, ours, head, "classify", ("score",), "score")
    config = json.loads((folder / "config.json").read_text())
    if activation == "regression":
        assert {name: config[name] for name in NAMED[activation]} == NAMED[activation]
    else:
        config = {n: x for n, x in config.items() if n not in ("albertine", *NAMED["regression"])} | NAMED[
            activation
        ]
        (folder / "config.json").write_text(json.dumps(config))
    pairs = [*zip(TEXTS["zh"], TEXTS["zh"][::-1], strict=True)]
    wanted = CrossEncoder(str(folder), device="cpu").predict(pairs)
    squashed = bool((wanted < 1).all())
    assert squashed == (activation in ("nothing", "sigmoid", "not trusted"))
    if activation in ("nothing", "regression"):  # the pipeline reads no name of a function
        inputs = [{"text": a, "text_pair": b} for a, b in pairs]
        assert [row["score"] for row in pipeline("text-classification", folder)(inputs)] == (
            pytest.approx(wanted, abs=BOUND)
        )
    assert run(["convert", str(folder), str(tmp_path / "copy"), "--to", "albertine"]) == 0
    assert run(["convert", str(tmp_path / "copy"), str(tmp_path / layout), "--to", layout]) == 0
    for where in (folder, tmp_path / "copy", tmp_path / layout):
        found = Predictor(where, precision="float32")
        assert [row["score"] for row in found.classify(pairs)] == pytest.approx(wanted, abs=BOUND)
        rows = [{"text": a, "pair": b} for a, b in pairs]
        lines = [line["prediction"] for line in found.predict(rows, pair="pair")]
        assert lines == pytest.approx(wanted, abs=BOUND)
        shapes = {"classifier.weight": (1, found.model.config.hidden_size), "classifier.bias": (1,)}
        exported = ExportedFolder(found.model.config, opened(where).config, shapes)
        assert read_classifier(exported, where).sigmoid == squashed
        assert exported.config["albertine"].get("sigmoid", False) == squashed


@pytest.mark.parametrize("function", [IDENTITY, SIGMOID])
def test_a_cross_encoder_as_sentence_transformers_saves_it(
    function: str, tokenizers: dict[str, Tokenizer], tmp_path: Path
) -> None:
    """Whose function is in a file of its own since version 6. Catches: that file unread, here or by a
    copy; a function or a prompt that is passed over; texts that are read further than they are there."""
    from sentence_transformers import CrossEncoder

    ours, folder = tokenizers["zh"], tmp_path / "m"
    file = folder / "config_sentence_transformers.json"
    head = Classifier(encoder("bert", ours, {"pooler"}), 1, seed=2).eval()
    tuned(tmp_path / "first", ours, head, "classify", ("score",), "score")
    named = torch.nn.Identity() if function == IDENTITY else torch.nn.Sigmoid()
    first = CrossEncoder(str(tmp_path / "first"), device="cpu", activation_fn=named, max_length=13)
    first.save(str(folder))
    config = json.loads((folder / "config.json").read_text())
    for name in ("albertine", *NAMED["regression"]):  # those of a stranger
        config.pop(name, None)
    (folder / "config.json").write_text(json.dumps(config))
    pairs = [*zip(TEXTS["zh"], TEXTS["zh"][::-1], strict=True)]
    wanted = CrossEncoder(str(folder), device="cpu").predict(pairs)
    assert run(["convert", str(folder), str(tmp_path / "copy")]) == 0
    for where in (folder, tmp_path / "copy"):
        scores = Predictor(where, precision="float32").classify(pairs)
        assert [row["score"] for row in scores] == pytest.approx(wanted, abs=BOUND)
        assert CrossEncoder(str(where), device="cpu").predict(pairs) == pytest.approx(wanted, abs=BOUND)
    stored = json.loads(file.read_text())
    for changed, message in (
        ({"activation_fn": "torch.nn.modules.activation.Tanh"}, "applies Tanh"),
        ({"default_prompt_name": "query"}, "puts the prompt `query` before texts"),
    ):
        file.write_text(json.dumps(stored | changed))
        with pytest.raises(ModelError, match=message):
            Predictor(folder, precision="float32").classify(pairs)


def test_a_list_of_modules_alone_makes_no_embedding_model(
    tokenizers: dict[str, Tokenizer], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a cross-encoder, which has one since version 6. Catches: a card that describes vectors; a checkpoint
    refused for it, though it is complete; tokenizer call settings ignored."""
    from sentence_transformers import CrossEncoder

    ours, folder = tokenizers["zh"], tmp_path / "m"
    head = Classifier(encoder("bert", ours, {"pooler"}), 1, seed=2).eval()
    tuned(tmp_path / "first", ours, head, "classify", ("score",), "score")
    theirs = CrossEncoder(str(tmp_path / "first"), device="cpu", activation_fn=torch.nn.Sigmoid())
    theirs[0].processing_kwargs = {"text": {"max_length": 13}}
    theirs.save(str(folder))
    assert (folder / "modules.json").is_file()
    pairs = [*zip(TEXTS["zh"], TEXTS["zh"][::-1], strict=True)]
    wanted = CrossEncoder(str(folder), device="cpu").predict(pairs)
    for layout in ("bert4keras", "lonepatient"):
        assert run(["convert", str(folder), str(tmp_path / layout), "--to", layout]) == 0, capsys.readouterr()
    for where in (folder, tmp_path / "bert4keras", tmp_path / "lonepatient"):
        scores = Predictor(where, precision="float32").classify(pairs)
        assert [row["score"] for row in scores] == pytest.approx(wanted, abs=BOUND)
    assert run(["card", str(folder)]) == 0
    card = (folder / "README.md").read_text()
    assert "pipeline_tag: text-classification" in card and ".embed(" not in card
    assert '.classify([("a text", "another")])' in card and "- sentence-transformers" in card
    file = folder / "sentence_bert_config.json"
    odd = json.loads(file.read_text()) | {"processing_kwargs": {"text": {"truncation": "only_second"}}}
    file.write_text(json.dumps(odd))
    assert run(["convert", str(folder), str(tmp_path / "copy"), "--to", "albertine"]) == 0
    for where in (folder, tmp_path / "copy"):
        with pytest.raises(ModelError, match="calls the tokenizer with truncation"):
            Predictor(where, precision="float32").classify(pairs)


def test_zero_shot_classification(tokenizers: dict[str, Tokenizer], tmp_path: Path) -> None:
    """A classifier of pairs as a judge of any classes: each is a second text of its own."""
    ours, names = tokenizers["en"], ("contradiction", "neutral", "entailment")
    head = Classifier(encoder("bert", ours, {"pooler"}), 3, seed=2).eval()
    folder = tuned(tmp_path / "m", ours, head, "classify", names, "single")
    text, classes = TEXTS["en"][0], ["football", "law", "the king"]
    found = pipeline("zero-shot-classification", folder)(text, classes, multi_label=True)
    own = Predictor(folder, precision="float32").classify([(text, f"This example is {x}.") for x in classes])
    wanted = {
        x: p["entailment"] / (p["entailment"] + p["contradiction"]) for x, p in zip(classes, own, strict=True)
    }
    assert dict(zip(found["labels"], found["scores"], strict=True)) == pytest.approx(wanted, abs=BOUND)


@pytest.mark.sample(3)
@both
@tagging_kinds
def test_token_classification(
    kind: str, language: str, tokenizers: dict[str, Tokenizer], tmp_path: Path
) -> None:
    ours, names = tokenizers[language], ("O", "B-PER", "I-PER")
    heads = {"pooler"} if kind in POOLED else set()
    head = Classifier(encoder(kind, ours, heads), len(names), per_token=True, seed=2).eval()
    folder = tuned(tmp_path / "m", ours, head, "tag", names, None)
    text = TEXTS[language][0]
    found = pipeline("token-classification", folder, ignore_labels=[])(text)
    packed, _ = from_padded(*ours(text, return_tensors="pt").values())
    with torch.no_grad():
        own = head(packed)[1:-1].softmax(-1)
    assert [one["entity"] for one in found] == [names[i] for i in own.argmax(-1)]
    assert [one["score"] for one in found] == pytest.approx(own.amax(-1).tolist(), abs=BOUND)
    places = [text[one["start"] : one["end"]] for one in found]
    assert "".join("".join(places).split()) == "".join(text.split())


@pytest.mark.sample(3)
@both
@tagging_kinds
def test_question_answering(
    kind: str, language: str, tokenizers: dict[str, Tokenizer], tmp_path: Path
) -> None:
    ours = tokenizers[language]
    heads = {"pooler"} if kind in POOLED else set()
    head = Classifier(encoder(kind, ours, heads), 2, per_token=True, name="qa_outputs", seed=2).eval()
    folder = tuned(tmp_path / "m", ours, head, "answer", (), None)
    question, passage = QUESTIONS[language]
    theirs = transformers.AutoModelForQuestionAnswering.from_pretrained(folder).eval()
    batch = transformers.AutoTokenizer.from_pretrained(folder)(question, passage, return_tensors="pt")
    with torch.no_grad():
        out = theirs(**batch)
        logits = torch.stack([out.start_logits, out.end_logits], -1)[0]
        own = head(from_padded(*ours(question, passage, return_tensors="pt").values())[0])
    assert (logits - own).abs().max() <= BOUND
    if "question-answering" in SUPPORTED_TASKS:  # which the newest releases have dropped
        pipe = pipeline("question-answering", folder)
        # Ours are not widened to whole words.
        found = pipe(question=question, context=passage, max_answer_len=30, align_to_words=False)
        best = Predictor(folder, precision="float32").answer(question, passage)
        assert best is not None and found["answer"].strip() == passage[best.begin : best.end].strip()


@pytest.mark.sample(3)
@every_kind
@pytest.mark.parametrize(("pooling", "normalize"), [("mean", True), ("cls", False)])
def test_sentence_transformers(
    kind: str, pooling: Any, normalize: bool, tokenizers: dict[str, Tokenizer], tmp_path: Path
) -> None:
    from sentence_transformers import SentenceTransformer

    model = encoder(kind, tokenizers["zh"], set())
    files = sentence_files(Embedder(model, pooling, normalize))
    save_model(model, tokenizers["zh"], tmp_path / "m", extra_files=files)
    theirs = SentenceTransformer(str(tmp_path / "m"), device="cpu")
    texts = [*TEXTS["zh"], "长" * 90]
    own = Predictor(tmp_path / "m", precision="float32").embed(texts)
    np.testing.assert_allclose(theirs.encode(texts), own, atol=BOUND)


def test_xlnet(tmp_path: Path) -> None:
    """Whose rows end with [CLS] and are padded on the left: features, classes, tags and vectors."""
    from sentence_transformers import SentenceTransformer

    texts = [text.replace("\t", " ") for text in TEXTS["en"]]
    ours = train_sentencepiece([*texts, *QUESTIONS["en"]] * 20, tmp_path / "vocabulary", 60, cls_last=True)
    base = our_model({"pooler"}, plan=SharingPlan.unshared(2), vocab_size=ours.vocab_size)
    assert model_type(base.config) == "xlnet"
    names = ("good", "bad", "neither")
    head = Classifier(base, 3, seed=2).eval()
    folder = tuned(tmp_path / "classes", ours, head, "classify", names, "single")
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    batch, fields = (cut(texts, texts[::-1], padding=True) for cut in (theirs, lambda *x, padding: ours(*x)))
    for ids, mask, own, real in zip(
        batch["input_ids"],
        batch["attention_mask"],
        fields["input_ids"],
        fields["attention_mask"],
        strict=True,
    ):
        assert [i for i, m in zip(ids, mask, strict=True) if m] == [
            i for i, m in zip(own, real, strict=True) if m
        ]
    one = pipeline("feature-extraction", folder)(texts[0], return_tensors=True)[0]
    alone = base(*ours(texts[0], return_tensors="pt").values()).last_hidden_state[0]
    assert one.shape == alone.shape and (one - alone).abs().max() <= BOUND
    found = pipeline("text-classification", folder)(texts, top_k=None)
    scores = [{one["label"]: one["score"] for one in row} for row in found]
    assert scores == [
        pytest.approx(row, abs=BOUND) for row in Predictor(folder, precision="float32").classify(texts)
    ]

    head = Classifier(base, 3, per_token=True, seed=2).eval()
    folder = tuned(tmp_path / "tags", ours, head, "tag", ("O", "B-PER", "I-PER"), None)
    tags = pipeline("token-classification", folder, ignore_labels=[])(texts[0])
    with torch.no_grad():
        own = head(from_padded(*ours(texts[0], return_tensors="pt").values())[0])[:-2].softmax(-1)
    assert [one["score"] for one in tags] == pytest.approx(own.amax(-1).tolist(), abs=BOUND)

    save_model(base, ours, tmp_path / "vectors", extra_files=sentence_files(Embedder(base, "mean", True)))
    wanted = SentenceTransformer(str(tmp_path / "vectors"), device="cpu").encode(texts)
    own = Predictor(tmp_path / "vectors", precision="float32").embed(texts)
    np.testing.assert_allclose(wanted, own, atol=BOUND)


@both
def test_electra(language: str, tokenizers: dict[str, Tokenizer], tmp_path: Path) -> None:
    """What `convert --to electra` writes of shared depths: features, words and tags."""
    ours, names = tokenizers[language], ("O", "B-PER", "I-PER")
    changes: dict[str, Any] = {"hidden_act": "gelu", "max_position_embeddings": 64}
    base = builders.model(vocab_size=ours.vocab_size, **changes)
    head = Classifier(base, len(names), per_token=True, seed=2).eval()
    save_model(base, ours, tmp_path / "words", layout="electra")
    extra_config = head_config("electra", "tag", 0.1, names=names)
    save_model(
        base, ours, tmp_path / "tags", extra_tensors=head.head, extra_config=extra_config, layout="electra"
    )
    text = {"en": "He played for the [MASK] team.", "zh": "他为大将[MASK]。"}[language]
    words = pipeline("fill-mask", tmp_path / "words", top_k=3)(text)
    best = Predictor(tmp_path / "words", precision="float32").fill_mask(text, top_k=3)[0]
    assert [one["token"] for one in words] == [one.token_id for one in best]
    one = pipeline("feature-extraction", tmp_path / "words")(TEXTS[language][0], return_tensors=True)[0]
    batch = from_padded(*ours(TEXTS[language][0], return_tensors="pt").values())[0]
    with torch.no_grad():
        assert (one - base.encoder(batch).last_hidden).abs().max() <= BOUND
        own = head(batch)[1:-1].softmax(-1)
    tags = pipeline("token-classification", tmp_path / "tags", ignore_labels=[])(TEXTS[language][0])
    assert [one["score"] for one in tags] == pytest.approx(own.amax(-1).tolist(), abs=BOUND)


@pytest.mark.parametrize("language", RELEASED)
def test_the_released_models_load(language: str) -> None:
    from albertine.core.released import released_folder

    folder = released_folder(RELEASED[language])
    text = {"en": "He played for the national [MASK] team.", "zh": "他任命为大将[MASK]。"}[language]
    found = pipeline("fill-mask", folder, top_k=1)(text)[0]
    own = Predictor(folder, precision="float32").fill_mask(text, top_k=1)[0][0]
    assert found["token"] == own.token_id and found["score"] == pytest.approx(own.probability, abs=1e-3)
