"""Text embeddings of a model folder, tuned for them or not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from albertine.core.token_batches import batch_longest_first, batch_padded
from albertine.errors import SettingsError
from albertine.inference.exported_model import ExportedModel
from albertine.inference.inference_mode import without_gradients
from albertine.inference.probabilities import check_finite
from albertine.inference.whitening import Whitening
from albertine.interop.exported_folder import RAW_VECTOR, VECTOR
from albertine.interop.heads import max_length_of, pooling_of, task_of
from albertine.interop.huggingface.config import our_flags
from albertine.interop.model_folder import ModelDescription
from albertine.interop.sentence_transformers import VectorSettings, read_vectors
from albertine.model.config import Pooling
from albertine.tokenizers.base import Tokenizer

if TYPE_CHECKING:
    from albertine.model.model import Model


class Embedded(NamedTuple):
    """Vectors, float32 (texts, H or the whitened size), and the number of truncated texts."""

    vectors: NDArray[np.float32]
    cut: int


@dataclass(frozen=True)
class TextEmbedder:
    """A model with the pooling settings of its folder.

    Attributes:
        model: a torch model, or an exported graph, which contains the pooling and whitening of its folder.
        whitening: used where the caller passes no pooling.
    """

    model: Model | ExportedModel
    tokenizer: Tokenizer
    how: VectorSettings
    whitening: Whitening | None = None

    @property
    def limit(self) -> int:
        """Maximum tokens of a text, special tokens included."""
        positions = self.model.config.max_position_embeddings
        return min(positions, self.how.max_length or positions)

    def __call__(
        self,
        texts: Sequence[str],
        *,
        pooling: Pooling | None = None,
        normalize: bool | None = None,
        check: bool = True,
    ) -> Embedded:
        """The vectors of texts, in their order. A batch is bounded in tokens, so the list may be long.

        Args:
            pooling, normalize: as in `model.pooling`; None: the folder's setting.
            check: raise if a vector is not finite; otherwise it is returned unchanged.

        Raises:
            SettingsError: an unknown pooling. NotFinite: a vector is not finite; names the text.
        """
        return self.of_tokens(self.tokens(texts), pooling=pooling, normalize=normalize, check=check)

    def cased(self, text: str) -> str:
        """A text in the case in which the model reads it."""
        return text.lower() if self.how.lower else text

    def tokens(self, texts: Sequence[str], *, whole: bool = False) -> list[list[int]]:
        """The token ids of texts, without special tokens.

        Args:
            whole: also those beyond the limit; otherwise a long text may end soon after it.
        """
        cased = list(map(self.cased, texts))
        return self.tokenizer.encode_batch(
            cased if whole else [self.tokenizer.head(text, self.limit) for text in cased]
        )

    def of_tokens(
        self,
        ids: Sequence[Sequence[int]],
        *,
        pooling: Pooling | None = None,
        normalize: bool | None = None,
        check: bool = True,
    ) -> Embedded:
        """The vectors of texts by their token ids, as `tokens` gives them. Arguments and errors are those
        of a call."""
        by_folder = pooling is None
        raw = by_folder and normalize is False and self.how.normalize
        whitening = self.whitening if by_folder else None
        pooling = self.how.pooling if pooling is None else pooling
        normalize = self.how.normalize if normalize is None else normalize
        if pooling not in get_args(Pooling):
            raise SettingsError(
                f"there is no pooling `{pooling}`", remedy=f"Known: {', '.join(get_args(Pooling))}"
            )
        rows, cut = rows_of(self.tokenizer, ids, self.limit)
        lengths = [len(row) for row, _ in rows]
        size = self.model.config.hidden_size if whitening is None else whitening.matrix.shape[1]
        compute: Callable[..., NDArray[np.float32]]
        if isinstance(self.model, ExportedModel):
            whole = by_folder and (RAW_VECTOR if raw else VECTOR) in self.model.outputs
            size = self.model.width if whole else size
            compute = partial(self.model.vectors, pooling=None if whole else pooling, raw=raw)
            runs = batch_padded
        else:
            compute, runs = (
                partial(_pooled, self.model, pooling=pooling, whitening=whitening),
                batch_longest_first,
            )
        found = np.empty((len(rows), size), dtype=np.float32)
        for chosen in runs(lengths, self.model.tokens_per_pass):
            vectors = compute(*([rows[i][part] for i in chosen] for part in (0, 1)))
            found[chosen] = normalize_rows(vectors) if normalize else vectors
        if check:
            check_finite(found, "text")
        return Embedded(found, cut)


def rows_of(
    tokenizer: Tokenizer, ids: Sequence[Sequence[int]], limit: int
) -> tuple[list[tuple[list[int], list[int]]], int]:
    """Token and segment ids of the row of each text, by its token ids, and the number of truncated texts."""
    rows = [tokenizer.layout(row, max_length=limit) for row in ids]
    return rows, sum(len(row) + 2 > limit for row in ids)


@without_gradients
def _pooled(
    model: Model,
    ids: Sequence[Sequence[int]],
    types: Sequence[Sequence[int]],
    pooling: Pooling,
    whitening: Whitening | None,
) -> NDArray[np.float32]:
    """The vectors of rows by a torch model, (rows, H or the whitened size)."""
    from albertine.core.batch import pack
    from albertine.model.pooling import text_vectors

    packed = pack(ids, types).to(model.device)
    vectors = text_vectors(model, packed, pooling) if whitening is None else whitening(model, packed)
    numbers: NDArray[np.float32] = vectors.cpu().numpy()
    return numbers


def normalize_rows(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows scaled to length 1; a row of zeros stays."""
    found: NDArray[np.float32] = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
    return found


def row_cosines(u: NDArray[np.float32], v: NDArray[np.float32]) -> NDArray[np.float32]:
    """Cosines of matching rows, (n,), in [-1, 1]; both arguments (n, H) with rows of length 1."""
    found: NDArray[np.float32] = np.clip((u * v).sum(-1), -1, 1)
    return found


def vector_settings(folder: ModelDescription, path: Path) -> VectorSettings:
    """The embedding settings of a folder: from its sentence-transformers files, or from config.json where
    those have no field for one.

    Raises:
        ModelError: the files are damaged, or name a module that Albertine does not compute.
    """
    found = read_vectors(path, last=folder.encoder.summary == "last")
    if task_of(folder) != "embed":
        return found
    length = max_length_of(folder)
    found = replace(found, max_length=min(length, found.max_length or length))
    pooling, normalize = pooling_of(folder), our_flags(folder.config).get("normalize") is True
    if pooling == "cls" or pooling == "compared":  # only classifiers have the second
        return found
    if pooling == "whitened":  # by whitening.safetensors
        return replace(found, normalize=normalize)
    return replace(found, pooling=pooling, normalize=normalize)


def cosines(a: NDArray[np.float32], b: NDArray[np.float32]) -> NDArray[np.float32]:
    """The cosine of every row of (n, H) with every row of (m, H), (n, m), in [-1, 1]."""
    found: NDArray[np.float32] = np.clip(normalize_rows(a) @ normalize_rows(b).T, -1, 1)
    return found
