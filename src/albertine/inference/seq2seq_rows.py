"""Text generation from sources [CLS] text [SEP] or [CLS] text [SEP] second text [SEP], all in segment 0."""

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
"""Maximum tokens in the KV cache, counted for every beam: 600 MB for a base model."""


class Written(NamedTuple):
    """A generated text and its score as in `search`; higher is better, at most 0."""

    text: str
    score: float


def source_row(
    tokenizer: Tokenizer, text: Sequence[int], pair: Sequence[int] | None, max_length: int
) -> tuple[list[int], bool]:
    """The token ids of a source, and whether it was truncated."""
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
    """Texts for every source, best first by beam search, or in the order of sampling.

    Args:
        poll: called before each batch.
        going: the sources are texts for a language model to continue.
    """
    from albertine.inference.continuation import Continuation
    from albertine.inference.decoder import Decoder

    found: list[list[Written]] = [[] for _ in sources]
    lengths = [len(ids) for ids in sources]
    copies = how.beams if isinstance(how, Search) else how.count
    for chosen in batch_longest_first(lengths, max(1, (model.batch_tokens or MAX_CACHED_TOKENS) // copies)):
        poll()
        own = [sources[i] for i in chosen]
        decoder = (
            Decoder(model, tokenizer, own) if going is None else Continuation(model, tokenizer, own, going)
        )
        tables, end = (decoder.first, decoder.next), tokenizer.sep_id
        texts = (
            beam_search(*tables, end, how) if isinstance(how, Search) else sample(*tables, end, how, chosen)
        )
        for i, hypotheses in zip(chosen, texts, strict=True):
            found[i] = [Written(tokenizer.decode(h.ids), h.score) for h in hypotheses]
    return found
