"""Numbers that must come out the same on every processor, to a tolerance."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import albertine
from tests.contracts.products import Products

TOLERANCE = 2e-3
"""Relative: float32 sums in another order, over three steps of training."""
SENTENCES = {
    "albertine-mini-en": "He played for the national football [MASK].",
    "albertine-mini-zh": "皇帝下诏任命他为大将[MASK]。",
}


def contract(products: Products) -> dict[str, Any]:
    """Guesses of released models, losses of a toy run, bytes of a corpus, sizes of presets."""
    return {
        "fill-mask": {name: _guesses(name) for name in SENTENCES},
        "similarity": _similarity(),
        "losses": _losses(products),
        "held-out scores": {
            name: value
            for name, value in sorted(products.pretrained.outcome.scores.items())
            if "loss" in name
        },
        "corpus": {
            file.relative_to(products.corpus).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
            for file in sorted(products.corpus.rglob("*.npy"))
        },
        "parameters": albertine.info(),
        "costs": albertine.info("albert-base-v2", length=128),
    }


def _guesses(name: str) -> list[list[Any]]:
    predictor = albertine.Predictor(name, precision="float32")
    (guesses,) = predictor.fill_mask(SENTENCES[name], top_k=5)
    return [[guess.token, guess.probability] for guess in guesses]


def _similarity() -> float:
    predictor = albertine.Predictor("albertine-mini-en", precision="float32")
    texts = (["A cat sat on the mat."], ["There was a cat on a mat."])
    return float(predictor.similarity(*texts)[0, 0])


def _losses(products: Products) -> list[dict[str, float]]:
    lines = (products.pretrained.folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [row for row in map(json.loads, lines) if "loss" in row]
    return [{name: float(row[name]) for name in sorted(row) if "loss" in name} for row in rows]
