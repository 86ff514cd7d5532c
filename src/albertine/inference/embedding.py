"""Text vectors of a model folder, tuned for them or not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, get_args

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from albertine.errors import SettingsError
from albertine.inference.whitening import Whitening
from albertine.interop.heads import length_of, pooling_of, task_of
from albertine.interop.huggingface import ModelFolder
from albertine.interop.huggingface_config import our_flags
from albertine.interop.sentence_transformers import Vectors, read_vectors
from albertine.layout import longest_first, pack
from albertine.model.model import Model
from albertine.model.pooling import Pooling, text_vectors
from albertine.text.tokenizer import Tokenizer


class Embedded(NamedTuple):
    """Vectors float32 (texts, H or what a whitening leaves), and how many texts lost tokens."""

    vectors: NDArray[np.float32]
    cut: int


@dataclass(frozen=True)
class TextEmbedder:
    """A model, and how its folder wants texts turned into vectors.

    Attributes:
        whitening: asked instead where no pooling is named.
    """

    model: Model
    tokenizer: Tokenizer
    how: Vectors
    whitening: Whitening | None = None

    @property
    def limit(self) -> int:
        """Tokens of a text that are looked at, special ones included."""
        positions = self.model.config.max_position_embeddings
        return min(positions, self.how.max_length or positions)

    @torch.inference_mode()
    def __call__(
        self, texts: Sequence[str], *, pooling: Pooling | None = None, normalize: bool | None = None
    ) -> Embedded:
        """The vectors of texts, in their order. What is computed together is bounded by tokens, so the list
        may be long.

        Args:
            pooling, normalize: as in `model.pooling`; None: as the folder says.

        Raises:
            SettingsError: an unknown pooling.
        """
        whitening = self.whitening if pooling is None else None
        pooling = self.how.pooling if pooling is None else pooling
        normalize = self.how.normalize if normalize is None else normalize
        if pooling not in get_args(Pooling):
            raise SettingsError(f"there is no pooling `{pooling}`", remedy="Known: mean and cls")
        ids = self.tokenizer.encode_batch([text.lower() if self.how.lower else text for text in texts])
        cut = sum(len(row) + 2 > self.limit for row in ids)
        rows = [self.tokenizer.layout(row, max_length=self.limit) for row in ids]
        lengths = [len(row) for row, _ in rows]
        size = self.model.config.hidden_size if whitening is None else whitening.matrix.shape[1]
        found = np.empty((len(rows), size), dtype=np.float32)
        for chosen in longest_first(lengths, self.model.tokens_per_pass):
            packed = pack([rows[i][0] for i in chosen], [rows[i][1] for i in chosen])
            packed = packed.to(self.model.device)
            if whitening is None:
                vectors = text_vectors(self.model, packed, pooling)
            else:
                vectors = whitening(self.model, packed)
            found[chosen] = (F.normalize(vectors, dim=-1) if normalize else vectors).cpu().numpy()
        return Embedded(found, cut)


def how_of(folder: ModelFolder, path: Path) -> Vectors:
    """What a folder says of its vectors: in its files for sentence-transformers, or in config.json where
    those cannot say it.

    Raises:
        ModelError: the files are damaged, or ask for what cannot be computed here.
    """
    found = read_vectors(path)
    if task_of(folder) != "embed":
        return found
    length = length_of(folder)
    found = replace(found, max_length=min(length, found.max_length or length))
    if (pooling := pooling_of(folder)) == "cls":
        return found
    return replace(found, pooling=pooling, normalize=our_flags(folder.config).get("normalize") is True)


def cosines(a: NDArray[np.float32], b: NDArray[np.float32]) -> NDArray[np.float32]:
    """The cosine of every row of (n, H) with every row of (m, H), (n, m)."""
    one, two = (x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12) for x in (a, b))
    found: NDArray[np.float32] = one @ two.T
    return found
