"""Vocabulary pruning of a model folder to the tokens that a corpus uses, and its effect on the corpus."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from albertine.corpus.manifest import manifest_digest
from albertine.corpus.reader import Corpus
from albertine.corpus.vocabulary_usage import Coverage, measure_coverage, token_counts
from albertine.errors import CorpusError
from albertine.interop.heads import head_config_for
from albertine.interop.huggingface.folders import STORED, Stored, read_folder, save_model, written_type
from albertine.interop.sentence_transformers import vector_files
from albertine.model.model import Model
from albertine.model.vocabulary_rows import with_pieces
from albertine.tokenizers.load import check_tokenizer, load_tokenizer
from albertine.tokenizers.prune import prune_tokenizer, same_vocabulary, select_tokens

RECORD = "pruning.json"
"""File in the pruned folder with the sizes, the coverage and the digest of the corpus."""


@dataclass(frozen=True)
class Pruned:
    """The result of pruning.

    Attributes:
        pieces, parameters: vocabulary size and parameter count before and after.
        coverage: share of the corpus that is tokenized as before. corpus: its `manifest_digest`.
        left_out: tensors of a head that Albertine does not compute.
    """

    pieces: tuple[int, int]
    parameters: tuple[int, int]
    coverage: Coverage
    corpus: str
    left_out: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The content of pruning.json."""
        pairs = {"pieces": self.pieces, "parameters": self.parameters}
        both = {name: {"before": before, "after": after} for name, (before, after) in pairs.items()}
        left = {"left_out": list(self.left_out)} if self.left_out else {}
        return {**both, "coverage": vars(self.coverage), "corpus": self.corpus, **left}


def prune(
    model: Path,
    corpus: Path,
    output: Path,
    *,
    keep: int | None = None,
    share: float = 1.0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Pruned:
    """Write a model with a pruned vocabulary into a folder, whole or not at all.

    The head, the embedding settings and the task's config.json entries are kept: hidden states do not change.
    Weights stored in 16 bits stay in 16 bits.

    Args:
        model: its folder. corpus: prepared with its tokenizer.
        keep, share: `keep` and `coverage` of `select_tokens`.
        progress: called with sentences done and sentences in all.

    Raises:
        CorpusError: the corpus was prepared with another tokenizer.
        ModelError, TokenizerError, SettingsError: the model cannot be read, or `keep` is too small.
    """
    found, before = read_folder(model), load_tokenizer(model)
    check_tokenizer(found.model.config, before, model)
    if not same_vocabulary(before, Corpus(corpus).tokenizer()):
        raise CorpusError(
            "was prepared with another tokenizer than the model's, whose pieces it cannot count",
            where=corpus,
            remedy=f"Prepare the text again with --tokenizer {model}, or name the text itself",
        )
    kept = select_tokens(before, token_counts(corpus), keep=keep, coverage=share)
    after = prune_tokenizer(before, kept)
    small = with_pieces(found.model, torch.from_numpy(kept), after.pad_id)
    result = Pruned(
        (before.vocab_size, after.vocab_size),
        (_parameters(found.model), _parameters(small)),
        measure_coverage(corpus, before, after, kept, progress),
        manifest_digest(corpus),
        tuple(found.left_aside),
    )
    files = vector_files(model, last=found.encoder.summary == "last")
    files[RECORD] = (json.dumps(result.as_dict(), indent=2) + "\n").encode()
    save_model(
        small,
        after,
        output,
        extra_tensors=found.extra,
        extra_config=head_config_for(found, written_type(small.config)),
        extra_files=files,
        stored=_stored([*small.state_dict().values(), *found.extra.values()]),
    )
    return result


def _parameters(model: Model) -> int:
    return sum(p.numel() for p in model.parameters())


def _stored(weights: Sequence[Tensor]) -> Stored:
    """The 16-bit format that holds all weights exactly, as of those read from a 16-bit file; else float32."""
    halves: tuple[Stored, ...] = ("float16", "bfloat16")
    fits = (half for half in halves if all(torch.equal(x.to(STORED[half]).float(), x) for x in weights))
    return next(fits, "float32")
