"""Analysis of encoders, as the commands of `albertine analyze`: `albertine.analyze.depth(model, texts)`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from albertine.api import naming_arguments
from albertine.errors import check_integer, needs_torch
from albertine.tasks.input_texts import texts_of

if TYPE_CHECKING:
    from albertine.analysis.attention import AttentionMaps
    from albertine.analysis.depth import DepthStudy
    from albertine.analysis.lens import Lens

__all__ = ["attention", "depth", "lens"]


@needs_torch
@naming_arguments()
def attention(model: str | Path, text: str) -> AttentionMaps:
    """Attention weights of a text in every layer and head, entropy and distance of each head, and the
    similarity of layers.

    Args:
        model: any name of a model.

    Raises:
        AlbertineError: there is no such model, no text, or it is longer than the model.
    """
    from albertine.analysis.attention import attention_of_named

    return attention_of_named(model, text)


@needs_torch
@naming_arguments()
def depth(
    model: str | Path, texts: str | Iterable[str], *, depths: int = 48, max_length: int = 128
) -> DepthStudy:
    """Apply a shared block repeatedly: residual and cosine of every depth, the fixed point, and the rate of
    convergence.

    Args:
        model: any name of a model whose layers share all weights.
        texts: to read.
        depths: how often the block is applied.
        max_length: tokens of a text that are read.

    Raises:
        AlbertineError: there is no such model, its layers differ, or there is no text.
    """
    from albertine.analysis.depth import study_texts

    check_integer("depths", depths, 2)
    check_integer("max_length", max_length, 1)
    return study_texts(model, texts_of(texts), depths=depths, max_length=max_length)[0]


@needs_torch
@naming_arguments()
def lens(
    model: str | Path,
    text: str,
    *,
    depths: Sequence[int] | None = None,
    top: int = 5,
    places: Sequence[int] | None = None,
) -> Lens:
    """The masked-LM head applied after every layer: the most probable tokens at every [MASK] of a text. In a
    text without [MASK] every token is masked alone.

    Args:
        model: any name of a model with a masked-LM head.
        depths: from 0, the embeddings; beyond the layers where all of them are one block. Default: up to the
            layers of the model, or twice as many where they can be repeated.
        top: number of tokens.
        places: indices of tokens, [CLS] at 0, to look at instead.

    Raises:
        AlbertineError: there is no such model, it has no masked-LM head, there is no text, or it is longer
            than the model.
    """
    from albertine.analysis.lens import lens_of_named

    return lens_of_named(model, text, depths=depths, top=top, places=places)
