"""The models that come with the package: their scores, their cards, and programs that load them."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest
import torch
import transformers

import albertine
from albertine.core.released import released_folder, released_names
from albertine.core.settings import load
from albertine.model.model import Model
from albertine.model.resharing import replan
from albertine.model.sharing import SharingPlan
from albertine.pretraining.settings import PretrainingSettings
from albertine.tasks.predictor import Predictor

NAMES = ("albertine-mini-en", "albertine-mini-zh", "albertine-small-en", "albertine-small-zh")
each = pytest.mark.parametrize("name", NAMES)
KNOWN = {
    "en": [
        ("He played for the national football [MASK].", {"team", "league", "club"}),
        ("I do not [MASK] what you mean.", {"know", "see", "think"}),
    ],
    "zh": [
        ("皇帝下诏任命他为大将[MASK]。", {"军"}),
        ("这座城市位于[MASK]国。", {"中", "美"}),
    ],
}
"""Sentences outside all corpora, and words of which one must be among the first five guesses."""


def test_all_are_there() -> None:
    assert released_names() == NAMES


@each
def test_guesses_fit_their_sentences(name: str) -> None:
    predictor = Predictor(name)
    for text, words in KNOWN[name[-2:]]:
        (guesses,) = predictor.fill_mask(text, top_k=5)
        assert words & {guess.token.lstrip("▁") for guess in guesses}, (text, guesses)


def test_the_larger_model_scores_higher_on_grammar() -> None:
    """Subject-verb agreement across another noun."""
    guess = {}
    for name in ("albertine-mini-en", "albertine-small-en"):
        (guesses,) = Predictor(name).fill_mask("The keys to the cabinet [MASK] on the table.", top_k=20)
        guess[name] = {g.token.lstrip("▁"): g.probability for g in guesses}
    small = guess["albertine-small-en"]
    assert small["were"] > 5 * small.get("was", 0.0) and small["were"] > guess["albertine-mini-en"].get(
        "were", 0.0
    )


@each
def test_words_in_disorder_are_less_likely(name: str) -> None:
    """What the model gains from context: shuffled words give less."""
    texts = {
        "en": "The king was killed in the battle and his son became king.",
        "zh": "皇帝在战争中去世，他的儿子继承了皇位。",
    }
    model, tokenizer = albertine.load(name), albertine.load_tokenizer(name)
    ids = torch.tensor(tokenizer(texts[name[-2:]])["input_ids"])
    order = torch.randperm(len(ids) - 2, generator=torch.Generator().manual_seed(0)) + 1
    shuffled = torch.cat([ids[:1], ids[order], ids[-1:]])

    def nats(row: torch.Tensor) -> float:
        total = 0.0
        for place in range(1, len(row) - 1):
            hidden = row.clone()
            hidden[place] = tokenizer.mask_id
            with torch.no_grad():
                state = model(hidden[None]).last_hidden_state[0, place : place + 1]
                total -= float(model.mlm_logits(state).log_softmax(-1)[0, row[place]])
        return total / (len(row) - 2)

    assert nats(shuffled) - nats(ids) > 0.5


@each
def test_similar_sentences_are_distinguished_from_others(name: str) -> None:
    """Unwhitened means have a cosine of 0.99 for any two."""
    alike, other = {
        "en": (
            ("A cat sat on the mat.", "There was a cat on a mat."),
            "The album was released in 2005.",
        ),
        "zh": (("花呗怎么还款", "花呗的还款方式"), "这座城市位于山区。"),
    }[name[-2:]]
    near, far, away = Predictor(name).similarity([alike[0]], [alike[1], other, alike[0]])[0].tolist()
    assert near > 0.25 and near > far + 0.2 and away == pytest.approx(1, abs=1e-3)


@each
def test_transformers_computes_the_same(name: str) -> None:
    """In float64 the formulas meet; in float32 ours stay as near to that as rounding allows.

    Not float32 beside float32: each rounds in its own order, and on a processor with AVX2 alone the sum of
    both errors passes the bound that neither passes (ours 1.1e-5, theirs 1.6e-5).
    """
    folder = released_folder(name)
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval().double()
    their_tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    texts = [text for text, _ in KNOWN[name[-2:]]]
    batch = their_tokenizer(texts, padding=True, return_tensors="pt")
    ours, tokenizer = albertine.load(name), albertine.load_tokenizer(name)
    for text, ids in zip(texts, batch["input_ids"], strict=True):
        own = tokenizer(text)["input_ids"]
        assert ids[: len(own)].tolist() == list(own)
    real = batch["attention_mask"].bool()

    def outputs_of(model: Model) -> tuple[torch.Tensor, torch.Tensor]:
        states = model(batch["input_ids"], batch["attention_mask"]).last_hidden_state
        return states[real].double(), model.mlm_logits(states)[real].double()

    with torch.no_grad():
        exact = theirs.roformer(**batch).last_hidden_state[real], theirs(**batch).logits[real]
        rounded, formula = outputs_of(ours), outputs_of(ours.double())
    # Not closer: in float32 are the folder's product of the embedding factors and transformers' sines.
    torch.testing.assert_close(formula, exact, atol=3e-6, rtol=0)
    torch.testing.assert_close(rounded[0], exact[0], atol=1e-5, rtol=1e-5)
    # Logits of up to 30 from states of about 1: the head enlarges the rounding.
    torch.testing.assert_close(rounded[1], exact[1], atol=1e-4, rtol=0)


@each
def test_the_card_reports_the_measured_values(name: str) -> None:
    folder = released_folder(name)
    card = (folder / "README.md").read_text(encoding="utf-8")
    scores = json.loads((folder / "scores.json").read_text(encoding="utf-8"))
    masked = scores["held_out"][0]
    for figure in (masked["mask_accuracy"], masked["accuracy"], scores["suite"]["right"]):
        assert f"{figure:.1%}" in card
    assert "held out" in card and "CC BY-SA" in card and "license: apache-2.0" in card


@each
def test_the_folder_is_small_and_states_how_it_was_made(name: str) -> None:
    folder = released_folder(name)
    assert sum(file.stat().st_size for file in folder.iterdir()) < 20e6
    settings = load(PretrainingSettings, folder / "settings.yaml")
    assert settings.name == name and settings.stages and settings.training.optimizer == "muon"
    for file in (*folder.glob("settings*.yaml"), *folder.glob("*.json"), folder / "README.md"):
        text = file.read_text(encoding="utf-8")
        assert not re.search(r"(?<![.\w])/(?:work|home|root|tmp)/", text), file
    rows = (folder / "curve.csv").read_text(encoding="utf-8").splitlines()
    assert rows[0].startswith("step,") and len(rows) > 50


@each
def test_it_shares_again_and_is_still_a_model(name: str, tmp_path: Path) -> None:
    model = albertine.load(name)
    depth = model.config.plan.depth
    shared = replan(model, SharingPlan.shared(depth), merge="mean")
    albertine.save(shared, albertine.load_tokenizer(name), tmp_path / "shared")
    again = albertine.load(tmp_path / "shared")
    assert again.config.plan == SharingPlan.shared(depth)
    assert sum(p.numel() for p in again.parameters()) < sum(p.numel() for p in model.parameters())
