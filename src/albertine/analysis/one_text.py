"""One text as the input of a model, for views of a single text."""

from __future__ import annotations

from albertine.errors import DataError
from albertine.model.model import Model
from albertine.tokenizers.base import Tokenizer


def model_input(model: Model, tokenizer: Tokenizer, text: str) -> tuple[list[int], list[int]]:
    """Token ids and segment ids of a text with its special tokens; those written in the text, such as [MASK],
    are recognised.

    Raises:
        DataError: there is no text, or it is longer than the model: it is not truncated, since a figure of
            its beginning would be taken for one of the whole.
    """
    if not text.strip():
        raise DataError("there is no text to read", remedy="Give a text")
    ids, segments = tokenizer.layout(tokenizer.encode_with_special_tokens(text))
    if len(ids) > (most := model.config.max_position_embeddings):
        raise DataError(
            f"the text has {len(ids):,} tokens with special ones, and the model reads {most:,}",
            remedy="Shorten it",
        )
    return ids, segments
