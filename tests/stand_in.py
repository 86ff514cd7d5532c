"""Tiny models in the place of the released ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import albertine
from albertine.core import released
from albertine.model.config import EncoderConfig
from albertine.model.model import Model
from albertine.model.sharing import SharingPlan
from albertine.tokenizers.load import load_tokenizer

WORDS = {
    "en": "the old man said he was a good house cat sat on mat . ,",
    "zh": "北 京 是 中 国 的 首 都 猫 在 坐 垫 上 好 。",
}


def rotary_model(pieces: int, *, seed: int = 1, depth: int = 2, **changes: Any) -> Model:
    """Shared depths of 32 with rotary positions and no table of them, as the released models have."""
    config = EncoderConfig(
        vocab_size=pieces,
        embedding_size=16,
        hidden_size=32,
        num_attention_heads=2,
        intermediate_size=64,
        plan=SharingPlan.shared(depth),
        max_position_embeddings=64,
        positions="rotary",
        initializer_range=0.1,
        **changes,
    )
    return Model(config, {"mlm", "sop"}, seed=seed).eval()


def put(folder: Path, language: str, *, seed: int = 1) -> Path:
    """A random model of a language under its released name in `folder`; returns where it lies."""
    target = folder / released.DEFAULT_MODELS[language]
    vocabulary = folder / f"{language}.txt"
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary.write_text("\n".join([*special, *WORDS[language].split()]) + "\n", encoding="utf-8")
    tokenizer = load_tokenizer(vocabulary)
    albertine.save(rotary_model(tokenizer.vocab_size, seed=seed), tokenizer, target)
    return target
