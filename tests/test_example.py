"""The example that shows the whole method in one file trains as the package does."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from albertine.core.batch import from_padded
from albertine.corpus.reader import Corpus
from albertine.model.config import EncoderConfig
from albertine.model.model import Model
from albertine.model.sharing import SharingPlan
from albertine.objectives.batch import PretrainingBatch
from albertine.objectives.losses import pretraining_losses
from albertine.training.optimizers import build_optimizer
from albertine.training.step import train_step
from tests.toy import toy_corpus

FILE = Path(__file__).resolve().parents[1] / "examples" / "albert_in_one_file.py"
STEPS = 50
SHAPE = {"embedding_size": 16, "hidden_size": 32, "intermediate_size": 64}
NAMES = {
    "encoder.attention.0.layer_norm": "block.attention_norm",
    "encoder.attention.0.output": "block.attention_output",
    "encoder.attention.0": "block",
    "encoder.feed_forward.0.layer_norm": "block.norm",
    "encoder.feed_forward.0": "block",
    "encoder.embeddings": "embeddings",
    "pooler.dense": "pooler",
    "sentence.classifier": "sentence",
    "mlm.dense": "mlm_dense",
    "mlm.layer_norm": "mlm_norm",
    "mlm.bias": "mlm_bias",
}
"""By beginnings of the package's parameter names those of the example."""


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location(FILE.stem, FILE)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[FILE.stem] = module  # dataclasses look there for their annotations
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return Corpus(toy_corpus(tmp_path_factory.mktemp("example")))


def name_in_example(name: str) -> str:
    return next(new + name[len(old) :] for old, new in NAMES.items() if name.startswith(old))


def test_fifty_updates_have_the_losses_of_the_package(example: ModuleType, corpus: Corpus) -> None:
    """From the same weights on the same batches, padded there and packed here, by LAMB."""
    vocab_size = corpus.tokenizer().vocab_size
    with torch.random.fork_rng():
        torch.manual_seed(1)
        theirs = example.Albert(example.Config(vocab_size, num_heads=2, num_layers=3, max_length=64, **SHAPE))
    config = EncoderConfig(
        vocab_size=vocab_size,
        num_attention_heads=2,
        plan=SharingPlan.shared(3),
        max_position_embeddings=64,
        **SHAPE,
    )
    ours = Model(config, {"mlm", "sop"})
    weights = theirs.state_dict()
    with torch.no_grad():
        for name, parameter in ours.named_parameters():
            parameter.copy_(weights.pop(name_in_example(name)))
    assert not weights  # all of them were used
    optimizers = example.Lamb(theirs), build_optimizer(ours, "lamb")
    found = []
    for step, batch in enumerate(islice(example.batches(corpus, 8, 64, seed=3), STEPS)):
        rate = example.learning_rate(step / STEPS, 0.02)
        report = train_step(
            ours.train(), [packed(batch)], pretraining_losses, optimizers[1], lr=rate, clip=1.0
        )
        means = [part.loss_sum / part.count for part in (report.parts["mlm"], report.parts["sentence"])]
        found.append([*example.update(theirs, optimizers[0], batch, rate), *means])
    losses = np.array(found)
    np.testing.assert_allclose(losses[:, :2], losses[:, 2:], atol=1e-3, rtol=0)
    assert losses[-10:, 0].mean() < losses[:10, 0].mean() - 0.3  # and it learns


def packed(batch: Any) -> PretrainingBatch:
    """A padded batch of the example as the package has it."""
    lengths = (~batch.padding).sum(1)
    found, index = from_padded(batch.ids, (~batch.padding).long(), batch.types)
    rows = torch.searchsorted(index, batch.predicted)
    paired = int((batch.swapped >= 0).sum())
    return PretrainingBatch(found, rows, batch.labels, batch.swapped, paired, torch.zeros(len(lengths), 2))


def test_ngrams_are_whole_words_of_one_segment(example: ModuleType) -> None:
    """15 % of a sequence at most, and n-grams of n words as often as p(n) = 1/n, section 4.1 of the paper."""
    rng = np.random.default_rng(1)
    starts = np.ones(100, dtype=bool)
    starts[10:90:4] = False  # words of two tokens
    special = np.zeros(100, dtype=bool)
    special[[0, 50, 99]] = True
    counts = np.zeros(100)
    for _ in range(300):
        chosen = example.choose_masked(starts, special, rng)
        assert len(chosen) == 15 and not special[chosen].any()
        assert all(starts[i] or special[i - 1] or i - 1 in chosen for i in chosen)
        assert all(i == 99 or starts[i + 1] or special[i + 1] or i + 1 in chosen for i in chosen)
        counts[chosen] += 1
    assert counts[~special].min() > 0
    assert np.round(example.NGRAM_P, 3).tolist() == [0.545, 0.273, 0.182]


def test_eighty_of_a_hundred_predicted_tokens_become_masks(example: ModuleType, corpus: Corpus) -> None:
    tokenizer = corpus.tokenizer()
    ids = np.full(20_000, 7)
    shown = example.mask(ids, range(0, 20_000, 2), tokenizer, np.random.default_rng(1))
    assert (shown[1::2] == 7).all()
    assert (shown[::2] == tokenizer.mask_id).mean() == pytest.approx(0.8, abs=0.02)
    assert (shown[::2] == 7).mean() == pytest.approx(0.1, abs=0.02)


def test_half_of_the_pairs_are_swapped_and_all_fit(example: ModuleType, corpus: Corpus) -> None:
    found = [one for seed in range(5) for one in example.samples(corpus, 32, np.random.default_rng(seed))]
    labels = np.array([label for _, _, label in found])
    assert (labels[labels >= 0]).mean() == pytest.approx(0.5, abs=0.05)
    for a, b, label in found:
        assert (b is None) == (label == -100)
        assert 0 < len(a[0]) + (0 if b is None else len(b[0])) <= 29 and len(a[0]) == len(a[1])


def test_it_is_short_and_stands_alone() -> None:
    """At most 400 lines, which import of the package the corpus reader and the tokenizer alone."""
    source = FILE.read_text(encoding="utf-8")
    assert len(source.splitlines()) <= 400
    names = [node.module for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)]
    own = {name for name in names if name and name.startswith("albertine")}
    assert own == {"albertine.corpus.reader", "albertine.tokenizers.base"}


def test_the_program(corpus: Corpus) -> None:
    words = [sys.executable, str(FILE), str(corpus.folder), "--steps", "2"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert "step     0  masked tokens" in done.stdout and "held-out text" in done.stdout
    assert done.stdout.count("[MASK]") == 3 and done.stderr == ""
