"""A linear-chain conditional random field over the tags of a text (Lafferty et al. 2001).

The score of a sequence of tags is the sum of its emissions (the logits), of a transition between every two
neighbours, and of a start and an end. Trained by the log-likelihood of the right sequence among all that the
tagging scheme allows, decoded by the best of them. Sequences are padded only here.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from albertine.core.batch import Packed
from albertine.errors import NotFinite
from albertine.model.model import Model
from albertine.model.task_model import Classifier

FORBIDDEN = -1e4  # finite, so that no gradient becomes NaN; its exponential is 0 in float32


class Crf(nn.Module):
    """Scores of transitions, starts and ends, initialised to zero, transitions with small noise.

    Attributes:
        transitions: (tags, tags), from the row to the column. start, end: (tags,).
    """

    penalty: Tensor

    def __init__(self, allowed: Sequence[Sequence[bool]]) -> None:
        """
        Args:
            allowed: (tags + 1, tags + 1), whether the column may follow the row; the last row stands for the
                beginning of a text, the last column for its end.
        """
        super().__init__()
        tags = len(allowed) - 1
        self.transitions = nn.Parameter(torch.zeros(tags, tags))
        self.start, self.end = nn.Parameter(torch.zeros(tags)), nn.Parameter(torch.zeros(tags))
        penalty = torch.where(torch.tensor(allowed), 0.0, FORBIDDEN)
        self.register_buffer("penalty", penalty, persistent=False)

    @property
    def scores(self) -> tuple[Tensor, Tensor, Tensor]:
        """Transitions, starts and ends, with `FORBIDDEN` added to those that the scheme excludes."""
        penalty = self.penalty
        return (
            self.transitions + penalty[:-1, :-1],
            self.start + penalty[-1, :-1],
            self.end + penalty[:-1, -1],
        )

    def log_likelihood(self, logits: Tensor, tags: Tensor, lengths: Sequence[int]) -> Tensor:
        """Log-probability of the tags of every sequence, (sequences,) float32.

        Args:
            logits: (tokens, tags) of all sequences, end to end. tags: (tokens,). lengths: none is zero.
        """
        transitions, start, end = self.scores
        emitted, real = _padded(logits.float(), lengths)
        chosen = pad_sequence(list(torch.split(tags, list(lengths))), True)
        path = emitted.gather(2, chosen[..., None]).squeeze(2)
        path[:, 1:] += transitions[chosen[:, :-1], chosen[:, 1:]]
        last = chosen.gather(1, real.sum(1, keepdim=True) - 1).squeeze(1)
        score = (path * real).sum(1) + start[chosen[:, 0]] + end[last]
        total = start + emitted[:, 0]
        # Unbound at once: the gradient of a slice would fill the whole table for every position.
        for t, here in enumerate(emitted.unbind(1)[1:], start=1):
            onward = (total[:, :, None] + transitions).logsumexp(1) + here
            total = torch.where(real[:, t, None], onward, total)
        return score - (total + end).logsumexp(1)

    @torch.no_grad()
    def best(self, logits: Tensor, lengths: Sequence[int]) -> Tensor:
        """The likeliest tags (tokens,) int64 of sequences of which none is empty (Viterbi)."""
        transitions, start, end = self.scores
        emitted, real = _padded(logits.float(), lengths)
        total, origins = start + emitted[:, 0], []
        stay = torch.arange(emitted.shape[2], device=emitted.device).expand_as(total)
        for t in range(1, emitted.shape[1]):
            onward, origin = (total[:, :, None] + transitions).max(1)
            total = torch.where(real[:, t, None], onward + emitted[:, t], total)
            origins.append(torch.where(real[:, t, None], origin, stay))
        tags = [(total + end).argmax(1)]
        for origin in reversed(origins):
            tags.append(origin.gather(1, tags[-1][:, None]).squeeze(1))
        return torch.stack(tags[::-1], 1)[real]


def _padded(logits: Tensor, lengths: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Padded logits (sequences, longest, tags), and the mask of real positions."""
    table = pad_sequence(list(torch.split(logits, list(lengths))), True)
    ends = torch.tensor(lengths, device=logits.device)
    return table, torch.arange(table.shape[1], device=logits.device) < ends[:, None]


class CrfTagger(Classifier):
    """A linear layer over every token, and a conditional random field over those of the text, not
    the special ones. Called, it gives the logits."""

    def __init__(
        self, base: Model, allowed: Sequence[Sequence[bool]], *, dropout: float = 0.1, seed: int = 0
    ) -> None:
        super().__init__(base, len(allowed) - 1, per_token=True, dropout=dropout, seed=seed)
        self.crf = Crf(allowed)
        self.initialize_head(seed)

    def inner(self, packed: Packed) -> Tensor:
        """Tokens scored by the field, bool (T,): all but the special ones."""
        return _inner(packed, self.base.config.lead)[0]

    def log_likelihood(self, logits: Tensor, packed: Packed, tags: Tensor) -> Tensor:
        """Sum over the sequences, a float32 scalar; `tags` (T,) of special tokens are ignored."""
        inner, lengths = _inner(packed, self.base.config.lead)
        if not lengths:
            return logits.sum() * 0
        return self.crf.log_likelihood(logits[inner], tags[inner], lengths).sum()

    def tags(self, packed: Packed) -> Tensor:
        """The likeliest tags (T,) int64; 0 for the special tokens. Raises NotFinite: a logit is not."""
        logits = self(packed)
        if not logits.isfinite().all():
            raise NotFinite
        inner, lengths = _inner(packed, self.base.config.lead)
        found = torch.zeros_like(packed.input_ids)
        if lengths:
            found[inner] = self.crf.best(logits[inner], lengths)
        return found


def _inner(packed: Packed, lead: int) -> tuple[Tensor, list[int]]:
    """Mask of tokens that are not special, and their number in each sequence; `lead` of its two special
    tokens precede the text."""
    inner = torch.ones_like(packed.input_ids, dtype=torch.bool)
    inner[packed.last_tokens] = False
    inner[packed.first_tokens if lead else packed.last_tokens - 1] = False
    return inner, [length - 2 for length in packed.lengths if length > 2]
