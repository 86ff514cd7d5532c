"""Heads of exported models: outputs computed in the graph over a table of sequences, and by the source model
over a packed batch, which the verification compares. `Family.graph_head` chooses that of a task.

Outputs have the names that transformers and Optimum give them. Their axes are "batch" (or sequences),
"tokens" (batch and length, where the batch is padded) and numbers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from albertine.core.batch import Packed
from albertine.inference.sequence_tables import Table, goes_on
from albertine.inference.whitening import Whitening
from albertine.interop.exported_folder import RAW_VECTOR, VECTOR
from albertine.model.answerability_head import ENDS, OUTSIDE, STARTS, Beam, JointAnswer
from albertine.model.encoder import Encoder
from albertine.model.loop import EncoderOutput
from albertine.model.model import Model
from albertine.model.pair_head import Comparer
from albertine.model.pooling import Pooling, text_vectors
from albertine.model.relation_head import Relations
from albertine.model.task_model import Classifier

Outputs = tuple[Tensor, ...]
LEAST = OUTSIDE / 2
"""Scores below it are of positions that cannot be an answer."""


class Head(ABC):
    """The head of an exported graph: outputs computed from the states of an encoder.

    Attributes:
        model: encoder and head, whose parameters are in the graph. base: the encoder and its pretraining
            heads.
        axes: the outputs by their names. integers: outputs that are positions, int64.
        depth: number of layers to compute; None: all. all_depths: it uses the states of every layer.
        of_subjects: it has an input `subjects`, int64 (M, 3): sequence, first and last position.
        vectors: its outputs are vectors of texts, not scores.
    """

    axes: Mapping[str, tuple[str | int, ...]]
    integers: frozenset[str] = frozenset()
    depth: int | None = None
    all_depths = of_subjects = vectors = False

    def __init__(self, model: nn.Module, base: Model) -> None:
        self.model, self.base = model, base

    @property
    def encoder(self) -> Encoder:
        return self.base.encoder

    @property
    def tables(self) -> int:
        """Bytes of constants that are no parameters: sines and cosines of places and steps."""
        signals = self.encoder.signals
        rows = sum(signals.sinusoids.values()) if signals is not None else 0
        return 4 * rows * self.base.config.hidden_size

    @abstractmethod
    def traced(self, table: Table, out: EncoderOutput, subjects: Tensor | None) -> Outputs:
        """The outputs in the graph."""

    @abstractmethod
    def source(self, packed: Packed, subjects: Tensor | None) -> Outputs:
        """The same by the source model, those of tokens as rows (T, …)."""

    def summary(self, table: Table, x_RH: Tensor) -> Tensor:
        """The states that stand for their sequences, (S, H)."""
        return x_RH[table.first if self.base.config.summary == "first" else table.last]


class Hidden(Head):
    """No head: the last states, and the pooler's output where there is one."""

    vectors = True

    def __init__(self, base: Model) -> None:
        super().__init__(base, base)
        hidden = base.config.hidden_size
        self.axes = {"last_hidden_state": ("tokens", hidden)}
        if base.pooler is not None:
            self.axes |= {"pooler_output": ("batch", hidden)}

    def traced(self, table: Table, out: EncoderOutput, subjects: Tensor | None) -> Outputs:
        x_RH = out.last_hidden
        pooled = () if self.base.pooler is None else (self.base.pooled(self.summary(table, x_RH)),)
        return table.shown(x_RH), *pooled

    def source(self, packed: Packed, subjects: Tensor | None) -> Outputs:
        x_TH = self.encoder(packed).last_hidden
        pooled = () if self.base.pooler is None else (self.base.pooled(x_TH[self.base.summary_rows(packed)]),)
        return x_TH, *pooled


class Words(Head):
    """The masked-LM head: logits of every token over the vocabulary."""

    def __init__(self, base: Model) -> None:
        super().__init__(base, base)
        self.axes = {"logits": ("tokens", base.config.vocab_size)}

    def traced(self, table: Table, out: EncoderOutput, subjects: Tensor | None) -> Outputs:
        return (table.shown(self.base.mlm_logits(out.last_hidden)),)

    def source(self, packed: Packed, subjects: Tensor | None) -> Outputs:
        return (self.base.mlm_logits(self.encoder(packed).last_hidden),)


class TextVector(Head):
    """One vector a text, as `albertine predict embed` gives it: by a pooling or a whitening.

    Where all depths are computed anyway, the last states are an output too, which the modules of
    sentence-transformers pool themselves. Of a vector of length 1 that cannot be pooled from those, what it
    was before is the last output.
    """

    vectors = True

    def __init__(
        self, base: Model, pooling: Pooling, normalize: bool, whitening: Whitening | None = None
    ) -> None:
        super().__init__(base, base)
        self.pooling, self.normalize, self.whitening = pooling, normalize, whitening
        hidden = base.config.hidden_size
        size = hidden if whitening is None else whitening.matrix.shape[1]
        self.depth = None if whitening is None else whitening.depth
        self.all_depths = whitening is None and pooling == "depths"
        states = {"last_hidden_state": ("tokens", hidden)} if whitening is None else {}
        self.axes = {**states, VECTOR: ("batch", size)}
        self.both = normalize and (whitening is not None or self.all_depths)
        if self.both:
            self.axes |= {RAW_VECTOR: ("batch", size)}

    @property
    def tables(self) -> int:
        return super().tables + (0 if self.whitening is None else 4 * self.whitening.matrix.numel())

    def traced(self, table: Table, out: EncoderOutput, subjects: Tensor | None) -> Outputs:
        if self.whitening is not None:
            x_SH = mean_of_table(table, out.last_hidden)
            return self._long((x_SH - self.whitening.mean) @ self.whitening.matrix)
        return table.shown(out.last_hidden), *self._long(pooled_table(self, table, out, self.pooling))

    def source(self, packed: Packed, subjects: Tensor | None) -> Outputs:
        if self.whitening is not None:
            return self._long(self.whitening(self.base, packed))
        vectors = text_vectors(self.base, packed, self.pooling)
        return self.encoder(packed).last_hidden, *self._long(vectors)

    def _long(self, x_SH: Tensor) -> Outputs:
        if not self.normalize:
            return (x_SH,)
        return (F.normalize(x_SH, dim=-1), x_SH) if self.both else (F.normalize(x_SH, dim=-1),)


class Classes(Head):
    """One layer over a row of every sequence, or over every token: classes, scores, options, tags."""

    def __init__(self, model: Classifier) -> None:
        super().__init__(model, model.base)
        self.classifier = model
        self.layer = model.get_submodule(model.name)
        outputs = int(self.layer.weight.shape[0])  # type: ignore[union-attr,arg-type,index,call-overload]
        self.all_depths = not model.per_token and model.pooling == "depths"
        self.axes = {"logits": ("tokens" if model.per_token else "batch", outputs)}

    def traced(self, table: Table, out: EncoderOutput, subjects: Tensor | None) -> Outputs:
        if self.classifier.per_token:
            return (table.shown(self.layer(out.last_hidden)),)
        pooling = self.classifier.pooling
        assert pooling != "compared" and pooling != "whitened"  # no classifier of one row
        x_SH = pooled_table(self, table, out, pooling)
        return (self.layer(self.base.pooled(x_SH) if pooling == "cls" else x_SH),)

    def source(self, packed: Packed, subjects: Tensor | None) -> Outputs:
        return (self.classifier(packed),)


class Span(Classes):
    """Two numbers a token: the span that answers begins there, and it ends there (SQuAD v1.1)."""

    def __init__(self, model: Classifier) -> None:
        super().__init__(model)
        self.axes = {"start_logits": ("tokens",), "end_logits": ("tokens",)}

    def traced(self, table: Table, out: EncoderOutput, subjects: Tensor | None) -> Outputs:
        (logits,) = super().traced(table, out, subjects)
        return logits.unbind(-1)

    def source(self, packed: Packed, subjects: Tensor | None) -> Outputs:
        starts, ends = self.classifier(packed).unbind(-1)
        return starts, ends


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
        every = torch.arange(x_SLH.shape[0], device=x_SLH.device)
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
        owners = torch.arange(x_SLH.shape[0], device=x_SLH.device)[:, None].expand(-1, x_SLH.shape[1])
        return table.flat(
            self.joint.end_logits(x_SLH.flatten(0, 1), start_SH, owners.flatten()).view(owners.shape)
        )

    def _inside(self, table: Table) -> Tensor:
        """Which places an answer may begin or end at, bool (S, L): as `model.answerability_head` has it."""
        types, within = table.types, goes_on(table)
        columns = torch.arange(types.shape[1], device=types.device)
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


class Comparison(Head):
    """Classes or a score of every sequence, by the embeddings and the first depth."""

    depth, all_depths = 1, True

    def __init__(self, model: Comparer) -> None:
        super().__init__(model, model.base)
        self.comparer = model
        outputs = int(model.get_submodule(model.name).weight.shape[0])  # type: ignore[union-attr,arg-type,index,call-overload]
        self.axes = {"logits": ("batch", outputs)}

    @property
    def tables(self) -> int:
        return super().tables + 4 * (self.comparer.means.numel() + self.comparer.matrices.numel())

    def traced(self, table: Table, out: EncoderOutput, subjects: Tensor | None) -> Outputs:
        text, states = _text(table, self.base.config.lead), out.hidden_states or ()
        return (self.comparer.compared(torch.stack([_pair_means(table, text, x) for x in states], 1)),)

    def source(self, packed: Packed, subjects: Tensor | None) -> Outputs:
        return (self.comparer(packed),)


class Pointers(Head):
    """Pointers to subjects, and to the objects of given subjects (`model.relation_head`).

    The first call has no subjects (M = 0) and gives `subject_logits`; a second call gives the objects of all
    subjects found.
    """

    of_subjects = True

    def __init__(self, model: Relations) -> None:
        super().__init__(model, model.base)
        self.relations = model
        predicates = model.object.out_features // 2
        self.axes = {
            "subject_logits": ("tokens", 2),
            "object_logits": ("subjects", "longest", predicates, 2),
        }

    def traced(self, table: Table, out: EncoderOutput, subjects: Tensor | None) -> Outputs:
        assert subjects is not None
        return (
            table.shown(self.relations.subjects(out.last_hidden)),
            self._objects(table.table(out.last_hidden), table.real, subjects),
        )

    def _objects(self, x_SLH: Tensor, real_SL: Tensor, subjects: Tensor) -> Tensor:
        """(M, L, predicates, 2); `OUTSIDE` at padding."""
        sequences, first, last = subjects.unbind(1)
        ends_M2H = torch.stack([x_SLH[sequences, first], x_SLH[sequences, last]], 1)
        x_MLH = x_SLH[sequences]
        owners = torch.arange(x_MLH.shape[0], device=x_MLH.device)[:, None].expand(-1, x_MLH.shape[1])
        found = self.relations.objects(x_MLH.flatten(0, 1), ends_M2H, owners.flatten())
        return torch.where(real_SL[sequences][..., None, None], found.view(*owners.shape, -1, 2), OUTSIDE)

    def source(self, packed: Packed, subjects: Tensor | None) -> Outputs:
        assert subjects is not None
        x_TH = self.encoder(packed).last_hidden
        x_SLH = pad_sequence(list(x_TH.split(list(packed.lengths))), True)
        lengths = torch.tensor(packed.lengths, device=x_TH.device)
        real_SL = torch.arange(x_SLH.shape[1], device=x_TH.device) < lengths[:, None]
        return self.relations.subjects(x_TH), self._objects(x_SLH, real_SL, subjects)


def pooled_table(head: Head, table: Table, out: EncoderOutput, pooling: Pooling) -> Tensor:
    """`model.pooling.text_vectors` of a table, (S, H)."""
    if pooling == "cls":
        return head.summary(table, out.last_hidden)
    if pooling not in ("mean", "depths"):
        raise ValueError(f"pooling {pooling} is not computed here")
    states = out.hidden_states if pooling == "depths" and out.hidden_states else (out.last_hidden,)
    return torch.stack([mean_of_table(table, x_RH) for x_RH in states]).mean(0)


def mean_of_table(table: Table, x_RH: Tensor) -> Tensor:
    """The mean over the tokens of each sequence, (S, H)."""
    counted = table.real[..., None].to(x_RH.dtype)
    return (table.table(x_RH) * counted).sum(1) / table.lengths[:, None]


def _there(values: Tensor, places: Tensor) -> Outputs:
    """Log-probabilities and places, those that no answer can have made alike: which of them are found is
    left to chance."""
    there = values > LEAST
    return torch.where(there, values, OUTSIDE), torch.where(there, places, 0)


def _text(table: Table, lead: int) -> Tensor:
    """Which tokens are of the texts themselves, bool (S, L): not [CLS], and none that ends a segment."""
    text = goes_on(table) & (table.types < 2)
    if not lead:
        return text
    columns = torch.arange(text.shape[1], device=text.device)
    return text & (columns != table.first_column[:, None])


def _pair_means(table: Table, text_SL: Tensor, x_RH: Tensor) -> Tensor:
    """`model.pair_head.pair_means` of a table, (S, 2, H)."""
    x_SLH, found = table.table(x_RH), []
    for segment in (0, 1):
        of_it = (text_SL & (table.types == segment)).to(x_SLH.dtype)
        # Where there is no token a row may hold anything; times 0 it would still be no number.
        sums = torch.where(of_it[..., None] > 0, x_SLH, 0.0).sum(1)
        found.append(sums / of_it.sum(1).clamp_min(1)[:, None])
    return torch.stack(found, 1)
