"""Small models with a random head of every family, as model folders and exported. A graph takes seconds to
make; tags are those of a random field alone, which reads the same logits."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from albertine.export.export_model import export
from albertine.inference.tags import tags_of
from albertine.inference.windows import WindowSettings
from albertine.model.config import EncoderConfig
from albertine.model.model import Model
from albertine.model.sharing import SharingPlan
from albertine.tasks.answer import Answer
from albertine.tasks.answerability import AnswerOrNot
from albertine.tasks.classify import Classify
from albertine.tasks.embed import Embed
from albertine.tasks.family import Family
from albertine.tasks.finetune import save_tuned
from albertine.tasks.multiple_choice import Choose
from albertine.tasks.relate import Relate
from albertine.tasks.tag import Tag
from albertine.tokenizers.wordpiece import WordPieceTokenizer
from tests.session_folders import made_once

SENTENCE = "the old man said that a house was good and never bad , who where ? in it"
WORDS = SENTENCE.split()
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
LONG = " ".join(WORDS * 3)
TEXTS = ["the old man", "a house was good , and it was never bad", "who", LONG]
PASSAGES = [
    ("who was old ?", "the old man said that the house was good"),
    ("where ?", LONG),
    ("who ?", "man"),
]

FAMILIES: dict[str, Family] = {
    "single": Classify("single", ("a", "b", "c"), (), 16),
    "multi": Classify("multi", ("a", "b", "c"), (), 16),
    "score": Classify("score", (), (), 16),
    "cross-encoder": Classify("score", (), (), 16),
    "compared": Classify("single", ("a", "b"), (), 24, pooling="compared"),
    "nli": Classify("single", ("contradiction", "entailment", "neutral"), (), 40, pairs=True),
    "tag": Tag(tags_of(["X", "Y"]), 20),
    "crf": Tag(tags_of(["X", "Y"], "bioes"), 20, crf=True),
    "answer": Answer(reading=WindowSettings(max_length=20, stride=5, best=5)),
    "answer or not": AnswerOrNot(reading=WindowSettings(max_length=20, stride=5, best=5), threshold=0.4),
    "choose": Choose(24),
    "relate": Relate(("p", "q"), 24),
    "embed": Embed("cosine", 16, normalize=True),
    "embed by depths": Embed("cosine", 16, "depths", normalize=True),
    "embed whitened": Embed("cosine", 16, "whitened", normalize=True),
}
PAIRS: list[Any] = ["the old man", ("a house", "was good"), LONG]
TWO = [("a house", "was good"), ("the old man", LONG), (LONG, "who")]
PRINTED: list[Any] = [{"text": text, "pair": "the house"} for text in TEXTS]
QUESTION_ROWS = [{"context": passage, "question": question} for question, passage in PASSAGES]
QUESTIONS: dict[str, list[tuple[str, list[Any]]]] = {
    "single": [("classify", [PAIRS]), ("predict", [TEXTS])],
    "multi": [("classify", [PAIRS]), ("predict", [TEXTS])],
    "score": [("classify", [PAIRS]), ("predict", [TEXTS])],
    "cross-encoder": [("classify", [TWO]), ("predict", [TEXTS])],
    "compared": [("classify", [TWO])],
    "crf": [("tag_all", [[*TEXTS, ""]]), ("predict", [TEXTS])],
    "answer": [("likely_spans", [PASSAGES]), ("predict", [QUESTION_ROWS])],
    "answer or not": [("likely_spans", [PASSAGES]), ("answer", [*PASSAGES[0]]), ("predict", [QUESTION_ROWS])],
    "choose": [("choose", ["the man _ good", ["was", "said", "never in a house"]])],
    "relate": [("relate_all", [TEXTS])],
    "embed": [("predict", [PRINTED]), ("embed", [TEXTS]), ("similarity", [TEXTS[:2], TEXTS[2:]])],
    "fill-mask": [("fill_mask", ["the [MASK] man said [MASK] house"])],
}
"""Calls for each folder: methods of `Predictor` with their arguments."""


def encoder(depth: int) -> EncoderConfig:
    """Shared layers of 32."""
    return EncoderConfig(
        vocab_size=len(PIECES),
        embedding_size=16,
        hidden_size=32,
        num_attention_heads=2,
        intermediate_size=64,
        plan=SharingPlan.shared(depth),
        max_position_embeddings=40,
        initializer_range=0.2,
    )


def tuned(name: str, folder: Path) -> Path:
    """A model folder with a head of random weights, so large that its probabilities are near 0 or 1."""
    tokenizer = WordPieceTokenizer(PIECES)
    # The time of an export grows with the layers: two where each is used, and once for all other heads.
    base = encoder(2 if name in ("single", "relate") or name.startswith("embed") else 1)
    if name == "fill-mask":
        from albertine import save

        save(Model(base, {"mlm", "pooler"}, seed=2).eval(), tokenizer, folder)
        return folder
    family = FAMILIES[name]
    model = family.build(Model(base, family.heads, seed=2), 0.0, 1).eval()
    draws = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for part, x in model.named_parameters():
            if not part.startswith("base."):
                x.copy_(0.7 * torch.randn(x.shape, generator=draws))
    save_tuned(model, tokenizer, family, folder)
    if name == "cross-encoder":  # as a folder of others, which states no activation: the default is sigmoid
        config = json.loads((folder / "config.json").read_text())
        config = {key: x for key, x in config.items() if key not in ("problem_type", "sentence_transformers")}
        (folder / "config.json").write_text(json.dumps(config))
    return folder


def exported(name: str, folder: Path) -> tuple[Path, Path]:
    """The folder of a model, and that of its export to ONNX."""
    source = tuned(name, folder / name)
    return source, export(source, folder / f"{name} exported").folder


def with_export(factory: pytest.TempPathFactory) -> Path:
    """The folder of a classifier, with its export to ONNX and OpenVINO beside the weights."""

    def make(folder: Path) -> None:
        export(tuned("single", folder / "model"), None, ["onnx", "openvino"])

    return made_once(factory, "with export", make) / "model"


def openvino_of(exported: Path) -> Path:
    """The folder of an export to ONNX, converted to OpenVINO alone."""
    from albertine.export.openvino import FOLDER, converted, save

    folder = exported.with_name(f"{exported.name} for OpenVINO")
    if not folder.is_dir():
        shutil.copytree(exported, folder, ignore=shutil.ignore_patterns("onnx", "export.json"))
        (folder / FOLDER).mkdir()
        save(converted(exported / "onnx" / "model.onnx"), folder / FOLDER / "openvino_model.xml")
    return folder
