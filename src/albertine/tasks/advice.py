"""What is known to go wrong with some models, said before a run begins (albert_family.md 1.7, section 5)."""

from __future__ import annotations

from albertine.interop.weights import read_json
from albertine.tasks.settings import FinetuneSettings

WIDE, WIDE_RATE = 2048, 1e-5


def advice(settings: FinetuneSettings) -> list[str]:
    """Warnings about the model and the settings together; empty where nothing is known against them."""
    config = read_json(settings.encoder.folder / "config.json")
    width, dropout = config.get("hidden_size"), config.get("hidden_dropout_prob")
    found = []
    if isinstance(width, int) and width >= WIDE and settings.training.learning_rate > WIDE_RATE:
        found.append(
            f"models as wide as this one ({width}) often stay at chance or diverge at rates like "
            f"{settings.training.learning_rate:g}; training.learning_rate=0.000005 has rescued them, and "
            "several seeds tell (--seeds 5)"
        )
    if dropout == 0 and settings.encoder.dropout > 0:
        found.append(
            "the checkpoint was pretrained without dropout, as ALBERT v2 is; with "
            f"encoder.dropout={settings.encoder.dropout:g} such models diverge on RACE, with 0 they do not"
        )
    return found
