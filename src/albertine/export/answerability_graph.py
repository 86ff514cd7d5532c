"""The joint head of SQuAD v2.0 in a graph (`model.answerability_head`)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from albertine.core.batch import Packed
from albertine.export.outputs import Head, Outputs
from albertine.export.sequence_tables import Table, goes_on
from albertine.model.answerability_head import ENDS, OUTSIDE, STARTS, Beam, JointAnswer
from albertine.model.layer_loop import EncoderOutput

LEAST = OUTSIDE / 2
"""No place that an answer may have is so unlikely."""


class JointSpan(Head):
    """The joint head of SQuAD v2.0, with the outputs of XLNetForQuestionAnswering of transformers: the best
    starts, for each of them the best ends, and the logit that there is no answer.

    As there, the second axis of `end_top_*` runs over the starts fastest: e·STARTS + s. Where a text has
    fewer places than are wanted, the rest have the log-probability `OUTSIDE` and the place 0.
    """

    integers = frozenset({"start_top_index", "end_top_index"})

    def __init__(self, model: JointAnswer) -> None:
        super().__init__(model, model.base)
        self.joint = model
        starts, ends = ("batch", STARTS), ("batch", STARTS * ENDS)
        self.axes = {
            "start_top_log_probs": starts,
            "start_top_index": starts,
            "end_top_log_probs": ends,
            "end_top_index": ends,
            "cls_logits": ("batch",),
        }

    def traced(self, table: Table, out: EncoderOutput, subjects: Tensor | None) -> Outputs:
        x_RH, head = out.last_hidden, self.joint
        inside_SL = self._inside(table)
        begins = self._log_softmax(table, head.start_logits(x_RH), inside_SL)
        starts = begins.topk(STARTS)
        last = table.last_column[:, None]
        tokens_RH = head.end_logits.tokens(x_RH)
        x_SLH = table.table(x_RH)
        every = torch.arange(x_SLH.shape[0])
        ends, scores = [], []
        for rank in range(STARTS):
            place = starts.indices[:, rank].minimum(last.squeeze(1))
            logits = self._ends(table, tokens_RH, x_SLH[every, place])
            best = self._log_softmax(table, logits, inside_SL).topk(ENDS)
            ends.append(best.indices)
            scores.append(torch.where(starts.values[:, rank, None] > LEAST, best.values, OUTSIDE))
        expected = (begins[:, : x_SLH.shape[1], None].exp() * x_SLH).sum(1)
        none = head.answer_class(expected, self.summary(table, x_RH), 0.0)
        both = torch.stack(scores, 2).flatten(1), torch.stack(ends, 2).flatten(1)
        return *_there(starts.values, starts.indices), *_there(*both), none

    def _ends(self, table: Table, tokens_RH: Tensor, start_SH: Tensor) -> Tensor:
        """Logits (R,) that the span ends there, if it begins at the start."""
        x_SLH = table.table(tokens_RH)
        owners = torch.arange(x_SLH.shape[0])[:, None].expand(-1, x_SLH.shape[1])
        return table.flat(
            self.joint.end_logits(x_SLH.flatten(0, 1), start_SH, owners.flatten()).view(owners.shape)
        )

    def _inside(self, table: Table) -> Tensor:
        """Which places an answer may begin or end at, bool (S, L): as `model.answerability_head` has it."""
        types, within = table.types, goes_on(table)
        columns = torch.arange(types.shape[1])
        if self.base.config.summary == "first":
            return ((types == 1) & within) | (columns == table.first_column[:, None])
        return ((types == 0) & within) | (columns == table.last_column[:, None])

    def _log_softmax(self, table: Table, logits_R: Tensor, inside_SL: Tensor) -> Tensor:
        """(S, L + ENDS): a row may have fewer tokens than starts or ends are wanted."""
        masked = torch.where(inside_SL, table.table(logits_R), OUTSIDE)
        masked = torch.where(table.real, masked, float("-inf"))
        return F.pad(masked, (0, max(STARTS, ENDS)), value=float("-inf")).log_softmax(-1)

    def source(self, packed: Packed, subjects: Tensor | None) -> Outputs:
        beam = Beam.of(self.joint(packed))
        starts = beam.starts[:, ::ENDS]
        begins = self.joint.learn(packed, torch.zeros_like(packed.first_tokens)).starts
        begins = F.pad(begins, (0, STARTS), value=float("-inf")).gather(1, starts)
        ends, scores = (x.view(-1, STARTS, ENDS).mT.flatten(1) for x in (beam.ends, beam.scores))
        each = begins.repeat(1, ENDS)
        scores = torch.where(each > LEAST, scores - each, OUTSIDE)
        return *_there(begins, starts), *_there(scores, ends), beam.impossible


def _there(values: Tensor, places: Tensor) -> Outputs:
    """Log-probabilities and places, those that no answer can have made alike: which of them are found is
    left to chance."""
    there = values > LEAST
    return torch.where(there, values, OUTSIDE), torch.where(there, places, 0)
