"""Small model folders to export."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import torch

from albertine.interop.heads import head_config
from albertine.interop.huggingface.folders import save_model
from albertine.interop.sentence_transformers import sentence_files
from albertine.model.model import Model
from albertine.model.pooling import Pooling
from albertine.model.task_model import Classifier, Embedder
from albertine.tokenizers.wordpiece import WordPieceTokenizer
from tests.model import builders

LETTERS = "abcdefghijklmnopqrstuvwxyz"
PIECES = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    *LETTERS,
    *(f"##{letter}" for letter in LETTERS),
    *("the", "old", "man", "said", "##ing", "##er", "un", "北", "京", ".", ",", "!"),
]
TEXT = "\n".join(
    f"{a} {b} said the {c}ing {d} of an old man, {b}{a}er and {c}un{d}. The {d}{b} {a}{c} ran to 北京!"
    for a, b, c, d in zip(
        LETTERS, LETTERS[3:] + LETTERS, LETTERS[7:] + LETTERS, LETTERS[11:] + LETTERS, strict=False
    )
)


def tokenizer() -> WordPieceTokenizer:
    return WordPieceTokenizer(PIECES)


def model(**changes: Any) -> Model:
    """A random model whose vocabulary is two rows larger than the tokenizer's."""
    return builders.model(**({"vocab_size": len(PIECES) + 2} | changes))


def embedder(
    folder: Path, pooling: Pooling = "mean", normalize: bool = False, sharp: float = 1.0, **changes: Any
) -> Path:
    """A model that was tuned to embed.

    Args:
        sharp: what its queries and keys are multiplied by; attention with small weights is nearly uniform.
    """
    base = model(**changes)
    with torch.no_grad():
        for block in base.encoder.attention:
            for layer in (block.query, block.key):
                layer.weight *= sharp  # type: ignore[union-attr,operator]
    files = sentence_files(Embedder(base, pooling, normalize))
    extra_config = head_config("albert", "embed", 0.1, pooling=pooling)
    extra_config["albertine"] |= {"normalize": normalize} if pooling == "depths" else {}
    save_model(base, tokenizer(), folder, extra_config=extra_config, extra_files=files)
    return folder


def of_two_texts(folder: Path, task: Literal["classify", "answer"], **changes: Any) -> Path:
    """A model tuned to classify pairs into three classes, or to answer questions, with confident outputs."""
    base = model(**changes)
    if task == "classify":
        tuned = Classifier(base, 3, seed=3)
        extra_config = head_config("albert", task, 0.1, names=("x", "y", "z"), kind="single", pairs=True)
    else:
        tuned = Classifier(base, 2, per_token=True, name="qa_outputs", seed=3)
        extra_config = head_config("albert", task, 0.1)
    with torch.no_grad():
        tuned.head[f"{tuned.name}.bias"].add_(2.0)
    save_model(base, tokenizer(), folder, extra_tensors=tuned.eval().head, extra_config=extra_config)
    return folder


def classifier(folder: Path, pooling: Pooling = "cls", **changes: Any) -> Path:
    """A model tuned to distinguish three classes."""
    tuned = Classifier(model(**changes), 3, pooling=pooling, seed=3).eval()
    extra_config = head_config(
        "albert", "classify", 0.1, names=("x", "y", "z"), kind="single", pooling=pooling
    )
    save_model(tuned.base, tokenizer(), folder, extra_tensors=tuned.head, extra_config=extra_config)
    return folder
