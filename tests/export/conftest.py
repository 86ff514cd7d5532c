"""Model folders that are exported, and one export that many tests look at."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch

import albertine
from albertine.cli.app import run
from albertine.interop.huggingface.folders import save_model, written_type
from albertine.model.config import EncoderConfig
from albertine.model.model import Model
from albertine.model.sharing import SharingPlan
from albertine.tasks.answerability import AnswerOrNot
from albertine.tasks.classify import Classify
from albertine.tasks.family import Family
from albertine.tasks.multiple_choice import Choose
from albertine.tasks.relate import Relate
from albertine.tasks.tag import Tag
from albertine.tokenizers.load import load_tokenizer
from tests.session_folders import made_once
from tests.stand_in import WORDS

FAMILIES: dict[str, Callable[[], Family]] = {
    "classify": lambda: Classify("single", ("a", "b", "c"), ("accuracy",), 32),
    "tag": lambda: Tag(("O", "B-x", "I-x"), 32, crf=True),
    "choose": lambda: Choose(32),
    "answer": AnswerOrNot,
    "relate": lambda: Relate(("is", "has"), 32),
}
Put = Callable[..., Path]


def encoder(vocabulary: int, **changes: object) -> EncoderConfig:
    """H 64, 4 heads, E 16 and two shared depths by default."""
    settings: dict[str, object] = {
        "vocab_size": vocabulary,
        "embedding_size": 16,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "intermediate_size": 128,
        "max_position_embeddings": 48,
        "initializer_range": 0.05,  # 7-bit weights of processors without VNNI keep their cosine
        "plan": SharingPlan.shared(2),
    }
    return EncoderConfig(**(settings | changes))  # type: ignore[arg-type]


def put_model(folder: Path, task: str | None = None, **changes: object) -> Path:
    """A random model in `folder`, pretrained alone or with the head of a task."""
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = folder / "words.txt"
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary.write_text("\n".join([*special, *WORDS["en"].split()]) + "\n", encoding="utf-8")
    tokenizer, target = load_tokenizer(vocabulary), folder / (task or "pretrained")
    base = Model(encoder(tokenizer.vocab_size, **changes), {"mlm", "sop"}, seed=1).eval()
    with torch.no_grad():
        for parameter in base.parameters():
            if parameter.ndim == 1:  # new biases are all zero, and an export may write one for all
                parameter.add_(torch.linspace(-0.1, 0.1, len(parameter)))
    if task is None:
        albertine.save(base, tokenizer, target)
        return target
    family = FAMILIES[task]()
    model = family.build(base, 0.0, 1)
    extra_config = family.config(written_type(base.config), 0.0)
    save_model(base, tokenizer, target, extra_tensors=model.head, extra_config=extra_config)
    return target


@pytest.fixture(scope="session")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_once(tmp_path_factory, "classifier", partial(put_model, task="classify")) / "classify"


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory, classifier: Path) -> Path:
    """The classifier in float32 and int8, padded and packed."""

    def make(folder: Path) -> None:
        assert run(["export", str(classifier), str(folder / "classifier"), "--int8", "--packed"]) == 0

    return made_once(tmp_path_factory, "exports", make) / "classifier"
