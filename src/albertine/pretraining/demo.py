"""Settings of `make demo`: pretraining in a few minutes, on text in the repository."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from albertine.core.settings import resolve
from albertine.errors import DataError
from albertine.pretraining.settings import PretrainingSettings

MODEL = {
    "hidden_size": 256,
    "intermediate_size": 1024,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "embedding_size": 128,
    "max_position_embeddings": 128,
    "positions": "rotary",
    "hidden_act": "gelu",
}
# Two minutes: short samples first, then longer ones, sentence order last.
STAGES = (
    {"begin": 0.0, "max_length": 16, "mask_probability": 0.25},
    {"begin": 0.25, "max_length": 32, "pairs": "none", "mask_probability": 0.25},
    {"begin": 0.55},
)


@dataclass(frozen=True)
class DemoLanguage:
    """The demo of one language."""

    code: str
    archive: str
    vocab_size: int
    masked: tuple[str, ...]


LANGUAGES = (
    DemoLanguage(
        "en",
        "english.tar.xz",
        4000,
        (
            "I am very glad to [MASK] you.",
            "“What do you mean?” [MASK] Alice.",
            "Mrs. [MASK] was very glad to see her sister.",
        ),
    ),
    DemoLanguage(
        "zh",
        "chinese.tar.xz",
        3000,
        (
            "中华人[MASK]共和国劳动法",
            "违反本法规[MASK]的，依法承担责任。",
            "当事人应当按照合[MASK]的约定履行义务。",
        ),
    ),
)


def demo_texts(folder: Path = Path("data/demo")) -> dict[str, list[Path]]:
    """The demo's text by language.

    Raises:
        DataError: there is no demo text in the folder.
    """
    texts = {language.code: [folder / language.archive] for language in LANGUAGES}
    for paths in texts.values():
        for path in paths:
            if not path.is_file():
                raise DataError(
                    "the demo text is missing",
                    where=path,
                    remedy="Run the demo from the root of the repository, or name the folder with --texts",
                )
    return texts


def free_name(output: Path, name: str) -> str:
    """The first of `name`, `name-2`, `name-3` … that does not exist in `output`."""
    candidate, number = name, 1
    while (output / candidate).exists():
        number += 1
        candidate = f"{name}-{number}"
    return candidate


def demo_settings(language: DemoLanguage, corpus: Path, output: Path, minutes: float) -> PretrainingSettings:
    """A run so small that it learns something in a minute on two cores."""
    return resolve(
        PretrainingSettings,
        {
            "name": free_name(output, f"demo-{language.code}"),
            "output": output,
            "corpus": corpus,
            "model": {
                "preset": "albert-tiny-zh",
                "embeddings": "wide",
                "output_bias": "unigram",
                "change": MODEL,
            },
            "objective": {
                "max_length": 64,
                "pairs": "sop",
                "masking": {"ngram": 1, "whole_word": False},
            },
            "stages": list(STAGES),
            "training": {
                "batch_size": 32,
                "minutes": minutes,
                "optimizer": "muon",
                "warmup": 0.05,
                "workers": 0,
            },
            "watching": {
                "log_every": 20,
                "evaluate_every": 200,
                "evaluate_sequences": 256,
                "checkpoint_every": 1000,
                "tensorboard": False,
            },
        },
    )
