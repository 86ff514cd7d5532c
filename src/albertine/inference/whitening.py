"""Whitened text embeddings of an encoder without fine-tuning (BERT-whitening, arXiv 2103.15316).

    v = (x - m) W,    W = U diag(λ)^-1/2

where x is the mean over the tokens of a text of the hidden states after a layer, m its mean over many
sentences and U diag(λ) Uᵀ its covariance. Subtracting the mean removes what all texts have in common, which
is most of a raw vector; W gives all directions unit variance. Early layers represent the topic best; the last
ones are specialized in predicting masked tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from safetensors import SafetensorError, safe_open

from albertine.core.randomness import generator
from albertine.core.token_batches import batch_longest_first
from albertine.errors import DataError, ModelError, NotFinite, SettingsError
from albertine.inference.inference_mode import without_gradients
from albertine.interop.sentence_transformers import WHITENING
from albertine.text.documents import FileReport, read_documents
from albertine.text.sentences import detect_language, document_sentences
from albertine.tokenizers.base import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

    from albertine.core.batch import Packed
    from albertine.model.model import Model

FILE = WHITENING
SENTENCES, SEEN, LONGEST = 10_000, 200_000, 64
"""Sentences that are measured, sentences that they are sampled from, and maximum tokens of one."""
SMALLEST = 1e-6
"""Directions with less than this share of the largest variance are dropped, as they are rounding error."""


@dataclass(frozen=True)
class Whitening:
    """A whitening transform.

    Attributes:
        depth: number of layers that are computed. mean: (H,). matrix: (H, K).
    """

    depth: int
    mean: Tensor
    matrix: Tensor

    def __call__(self, model: Model, packed: Packed) -> Tensor:
        """A vector for every sequence, (S, K) float32, also under `torch.autocast`."""
        import torch

        x_SH = _raw(model, packed, self.depth)
        with torch.autocast(x_SH.device.type, enabled=False):
            vectors: Tensor = (x_SH - self.mean.to(x_SH.device)) @ self.matrix.to(x_SH.device)
        return vectors

    def to_bytes(self) -> bytes:
        """The content of whitening.safetensors."""
        import safetensors.torch

        tensors = {"mean": self.mean, "matrix": self.matrix}
        content: bytes = safetensors.torch.save(tensors, metadata={"depth": str(self.depth)})
        return content


def _raw(model: Model, packed: Packed, depth: int) -> Tensor:
    from albertine.model.pooling import mean_rows

    return mean_rows(model.encoder(packed, depth=depth).last_hidden.float(), packed.first_tokens)


@without_gradients
def fit_whitening(
    model: Model, tokenizer: Tokenizer, sentences: Sequence[str], depth: int | None = None
) -> Whitening:
    """Fit a whitening on sentences of the intended domain.

    Args:
        depth: number of layers whose output is used; None: 1, or all of an equilibrium model.

    Raises:
        SettingsError: the model has fewer layers. DataError: fewer sentences than twice the hidden size.
        NotFinite: the vector of a sentence is not finite; names the sentence.
    """
    import torch

    from albertine.core.batch import pack
    from albertine.model.model import evaluating

    size, most = model.config.hidden_size, model.config.plan.depth
    depth = (model.config.early_depth or most) if depth is None else depth
    if not 0 <= depth <= most:
        raise SettingsError(f"the model has no depth {depth}", remedy=f"Choose 0 (its embeddings) to {most}")
    if len(sentences) < 2 * size:
        raise DataError(
            f"{len(sentences):,} sentences are too few for a covariance of {size} dimensions",
            remedy=f"Give text of {2 * size:,} sentences or more",
        )
    limit = min(LONGEST, model.config.max_position_embeddings)
    laid_out = [tokenizer.layout(ids, max_length=limit) for ids in tokenizer.encode_batch(sentences)]
    rows, types = ([one[part] for one in laid_out] for part in (0, 1))
    total = torch.zeros(size, dtype=torch.float64, device="cpu")
    squares = torch.zeros(size, size, dtype=torch.float64, device="cpu")
    with evaluating(model):
        for chosen in batch_longest_first([len(row) for row in rows], model.tokens_per_pass):
            packed = pack([rows[i] for i in chosen], [types[i] for i in chosen])
            x_SH = _raw(model, packed.to(model.device), depth).cpu().double()
            if not bool(x_SH.isfinite().all()):  # in the sums it would make every number NaN
                finite = x_SH.isfinite().all(1).tolist()
                raise NotFinite.of_items(
                    "sentence", sorted(i for i, ok in zip(chosen, finite, strict=True) if not ok)
                )
            total += x_SH.sum(0)
            squares += x_SH.T @ x_SH
    mean = total / len(rows)
    variances, directions = torch.linalg.eigh(squares / len(rows) - torch.outer(mean, mean))
    kept = variances > SMALLEST * variances[-1]
    matrix = directions[:, kept] * variances[kept].rsqrt()
    return Whitening(depth, mean.float(), matrix.float().contiguous())


def sentences_of(
    files: Iterable[Path], count: int = SENTENCES, on_file: Callable[[FileReport], None] | None = None
) -> list[str]:
    """Sentences of files and folders of text, sampled from the first `SEEN` with a fixed seed.

    Raises:
        DataError: a file is missing or not text.
    """
    found = (
        sentence
        for document in read_documents(list(files), on_file=on_file)
        for sentence in document_sentences(document, detect_language(" ".join(document.paragraphs)[:2000]))
        if sentence.strip()
    )
    seen = list(islice(found, SEEN))
    if len(seen) <= count:
        return seen
    places = generator(0, "sentences of a whitening").choice(len(seen), count, replace=False)
    return [seen[i] for i in np.sort(places).tolist()]


def read_whitening(folder: Path, hidden_size: int, depth: int) -> Whitening | None:
    """The whitening of a model folder, if it has one.

    Args:
        hidden_size, depth: of its encoder.

    Raises:
        ModelError: the file is damaged, or of another encoder.
    """
    file = folder / FILE
    if not file.is_file():
        return None
    remedy = "Make it again with albertine convert --whiten, or move it away"
    try:
        with safe_open(file, "pt") as opened:
            tensors = {name: opened.get_tensor(name).float() for name in ("mean", "matrix")}
            found = Whitening(int((opened.metadata() or {})["depth"]), **tensors)
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise ModelError(f"is not a whitening ({error!r:.80})", where=file, remedy=remedy) from error
    fits = found.mean.shape == (hidden_size,) and found.matrix.ndim == 2
    if not fits or len(found.matrix) != hidden_size or not 0 <= found.depth <= depth:
        raise ModelError("is the whitening of another encoder", where=file, remedy=remedy)
    return found
