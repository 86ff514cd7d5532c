"""Joint head of SQuAD v2.0: start, end given the start, and answerability.

As in XLNet (zihangdai/xlnet, `modeling.py`) and ALBERT (google-research/albert, `squad_utils.py`); its
parameters have the names that transformers gives them in XLNet's question-answering model. Hidden states stay
packed; only the logits of the tokens are padded to a table of windows, for the softmax.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from albertine.core.batch import Packed
from albertine.model.backend import LayerNorm, Linear
from albertine.model.config import Summary
from albertine.model.model import Model
from albertine.model.task_model import TaskModel

STARTS, ENDS = 5, 5
OUTSIDE = -1e30


class JointLogits(NamedTuple):
    """Outputs for training, float32: log-probabilities of start and of end given the right start, (S, L), and
    the logit that a window has no answer, (S,)."""

    starts: Tensor
    ends: Tensor
    impossible: Tensor


class Beam(NamedTuple):
    """Beam of spans of every window: the best ends for each of the best starts.

    Attributes:
        starts, ends: (S, spans) places in the row, int64.
        scores: (S, spans) log-probability of the start plus that of the end given it.
        impossible: (S,) logit that the window has no answer.
    """

    starts: Tensor
    ends: Tensor
    scores: Tensor
    impossible: Tensor

    def table(self) -> Tensor:
        """All fields as one row for each window, (S, 3·spans + 1) float32."""
        parts = (self.starts.float(), self.ends.float(), self.scores, self.impossible[:, None])
        return torch.cat(parts, 1)

    @classmethod
    def of(cls, table: Tensor) -> Beam:
        """Inverse of `table`."""
        starts, ends, scores = table[:, :-1].chunk(3, 1)
        return cls(starts.long(), ends.long(), scores, table[:, -1])


class StartLogits(nn.Module):
    """Dense H→1 on every token."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.dense = Linear(hidden, 1)

    def forward(self, x_TH: Tensor) -> Tensor:
        """(T,), float32."""
        return self.dense(x_TH).squeeze(-1).float()  # type: ignore[no-any-return]


class EndLogits(nn.Module):
    """Dense 2H→H on a token and the start beside it, tanh, LayerNorm, dense H→1."""

    def __init__(self, hidden: int, eps: float) -> None:
        super().__init__()
        self.dense_0 = Linear(2 * hidden, hidden)
        self.LayerNorm = LayerNorm(hidden, eps)
        self.dense_1 = Linear(hidden, 1)

    def tokens(self, x_TH: Tensor) -> Tensor:
        """The tokens' term of the first layer, with its bias, (T, H), independent of the start."""
        return self.dense_0(F.pad(x_TH, (0, x_TH.shape[1])))  # type: ignore[no-any-return]

    def forward(self, tokens_TH: Tensor, start_SH: Tensor, row_T: Tensor) -> Tensor:
        """(T,), float32.

        Args:
            tokens_TH: output of `tokens`. start_SH: the hidden state at each window's start.
            row_T: index of the window of each token.
        """
        # The layer is called, because it may have an adapter; the appended row of zeros yields its bias.
        both = self.dense_0(F.pad(start_SH, (start_SH.shape[1], 0, 0, 1)))
        x_TH = torch.tanh(tokens_TH + (both[:-1] - both[-1])[row_T])
        x_TH = self.LayerNorm(x_TH)
        return self.dense_1(x_TH).squeeze(-1).float()  # type: ignore[no-any-return]


class AnswerClass(nn.Module):
    """Dense 2H→H on the expected start and [CLS], tanh, dropout, dense H→1 without bias."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.dense_0 = Linear(2 * hidden, hidden)
        self.dense_1 = Linear(hidden, 1, bias=False)

    def forward(self, start_SH: Tensor, summary_SH: Tensor, dropout: float) -> Tensor:
        """(S,), float32."""
        both = torch.cat([start_SH, summary_SH], 1)
        x_SH = torch.tanh(self.dense_0(both))
        return self.dense_1(F.dropout(x_SH, dropout, dropout > 0)).squeeze(-1).float()  # type: ignore[no-any-return]


class JointAnswer(TaskModel):
    """An encoder and the joint head. Rows are [CLS] question [SEP] passage [SEP], the passage in segment 1,
    or XLNet's passage [SEP] question [SEP] [CLS], the passage in segment 0.

    Only tokens of the passage, and [CLS] for "no answer", can begin or end an answer.
    """

    def __init__(self, base: Model, *, dropout: float = 0.1, seed: int = 0) -> None:
        """
        Args:
            dropout: of the answerability classifier, in training.
        """
        super().__init__(base, dropout)
        hidden, eps = base.config.hidden_size, base.config.layer_norm_eps
        self.start_logits = StartLogits(hidden)
        self.end_logits = EndLogits(hidden, eps)
        self.answer_class = AnswerClass(hidden)
        self.initialize_head(seed)

    def learn(self, packed: Packed, starts: Tensor) -> JointLogits:
        """Outputs for training, with ends conditioned on the right starts.

        Args:
            starts: int64 (S,) right start in each row, that of [CLS] without an answer.
        """
        x_TH = self.base.encoder(packed).last_hidden
        row_T, inside_T = _rows(packed), _inside(packed, self.base.config.summary)
        begins = _log_softmax(self.start_logits(x_TH), inside_T, packed)
        gold_SH = x_TH[packed.first_tokens + starts]
        ends = self.end_logits(self.end_logits.tokens(x_TH), gold_SH, row_T)
        impossible = self._impossible(x_TH, begins, row_T, packed)
        return JointLogits(begins, _log_softmax(ends, inside_T, packed), impossible)

    def forward(self, packed: Packed) -> Tensor:
        """The best spans of every window, `Beam.table`: the `ENDS` likeliest ends of the `STARTS` likeliest
        starts."""
        x_TH = self.base.encoder(packed).last_hidden
        row_T, inside_T = _rows(packed), _inside(packed, self.base.config.summary)
        begins = _log_softmax(self.start_logits(x_TH), inside_T, packed, STARTS)
        tokens_TH = self.end_logits.tokens(x_TH)
        starts = begins.topk(STARTS)
        ends, scores = [], []
        for rank in range(STARTS):  # one at a time: the states of all would be T × STARTS × H
            # A row may have fewer tokens than starts; those beyond it score minus infinity.
            place = packed.first_tokens + starts.indices[:, rank].minimum(
                packed.last_tokens - packed.first_tokens
            )
            logits = self.end_logits(tokens_TH, x_TH[place], row_T)
            best = _log_softmax(logits, inside_T, packed, ENDS).topk(ENDS)
            ends.append(best.indices)
            scores.append(starts.values[:, rank, None] + best.values)
        return Beam(
            starts.indices.repeat_interleave(ENDS, 1),
            torch.cat(ends, 1),
            torch.cat(scores, 1),
            self._impossible(x_TH, begins, row_T, packed),
        ).table()

    def _impossible(self, x_TH: Tensor, begins: Tensor, row_T: Tensor, packed: Packed) -> Tensor:
        weighted = begins.exp()[row_T, packed.position_ids, None] * x_TH.float()
        expected = weighted.new_zeros(packed.num_sequences, x_TH.shape[1]).index_add(0, row_T, weighted)
        dropout = self.dropout if self.training else 0.0
        return self.answer_class(expected.to(x_TH.dtype), x_TH[self.base.summary_rows(packed)], dropout)  # type: ignore[no-any-return]


def _rows(packed: Packed) -> Tensor:
    """Index of each token's row, int64 (T,)."""
    lengths = packed.cu_seqlens.diff().long()
    rows = torch.arange(packed.num_sequences, device=lengths.device)
    return rows.repeat_interleave(lengths, output_size=packed.num_tokens)


def _inside(packed: Packed, summary: Summary) -> Tensor:
    """Tokens that may begin or end an answer, bool (T,): those of the passage, and [CLS]. The passage is
    segment 1, or XLNet's segment 0, up to a separator."""
    types = packed.token_type_ids
    goes_on = (types == F.pad(types[1:], (0, 1))).index_fill(0, packed.last_tokens, False)
    if summary == "first":
        return ((types == 1) & goes_on).index_fill(0, packed.first_tokens, True)
    return ((types == 0) & goes_on).index_fill(0, packed.last_tokens, True)


def _log_softmax(logits_T: Tensor, inside_T: Tensor, packed: Packed, least: int = 1) -> Tensor:
    """Log-probabilities (S, L) over the places of each window, those outside masked as the reference masks
    them, minus infinity beyond its end; L is that of the longest, or `least`."""
    logits_T = torch.where(inside_T, logits_T, OUTSIDE)
    table = pad_sequence(list(torch.split(logits_T, list(packed.lengths))), True, float("-inf"))
    return F.pad(table, (0, max(0, least - table.shape[1])), value=float("-inf")).log_softmax(-1)
