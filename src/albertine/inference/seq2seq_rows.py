"""Texts written after a source: [CLS] text [SEP], or [CLS] text [SEP] second text [SEP], all in segment 0."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from albertine.core.token_batches import batch_longest_first
from albertine.inference.inference_mode import without_gradients
from albertine.inference.search import Draw, Search, beam_search, sample
from albertine.tokenizers.base import Tokenizer

if TYPE_CHECKING:
    from albertine.inference.continuation import Going
    from albertine.model.model import Model

MAX_CACHED_TOKENS = 8192
"""Most tokens of which keys and values are kept at once, counted for every beam: 600 MB for a base model."""


class Written(NamedTuple):
    """A text, and its score as `search` has it: the higher the better, at most 0."""

    text: str
    score: float


def source_row(
    tokenizer: Tokenizer, text: Sequence[int], pair: Sequence[int] | None, max_length: int
) -> tuple[list[int], bool]:
    """The ids of a source, and whether tokens had to be left out."""
    ids, _ = tokenizer.layout(text, pair, max_length=max_length)
    wanted = len(text) + 2 + (0 if pair is None else len(pair) + 1)
    return ids, wanted > max_length


@without_gradients
def generate_texts(
    model: Model,
    tokenizer: Tokenizer,
    sources: Sequence[Sequence[int]],
    how: Search | Draw,
    poll: Callable[[], None] = lambda: None,
    *,
    going: Going | None = None,
) -> list[list[Written]]:
    """The texts found for every source, by beams best first, or as they were drawn.

    Args:
        poll: called before each batch.
        going: the sources are texts that a language model goes on with.
    """
    from albertine.inference.continuation import Continuation
    from albertine.inference.decoder import Decoder

    found: list[list[Written]] = [[] for _ in sources]
    lengths = [len(ids) for ids in sources]
    copies = how.beams if isinstance(how, Search) else how.count
    for chosen in batch_longest_first(lengths, max(1, (model.batch_tokens or MAX_CACHED_TOKENS) // copies)):
        poll()
        own = [sources[i] for i in chosen]
        speaker = (
            Decoder(model, tokenizer, own) if going is None else Continuation(model, tokenizer, own, going)
        )
        ask, end = (speaker.first, speaker.next), tokenizer.sep_id
        texts = beam_search(*ask, end, how) if isinstance(how, Search) else sample(*ask, end, how, chosen)
        for i, said in zip(chosen, texts, strict=True):
            found[i] = [Written(tokenizer.decode(f.ids), f.score) for f in said]
    return found
