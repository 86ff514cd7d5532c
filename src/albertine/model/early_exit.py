"""Early exit: a classifier after every layer, and a loop that a text leaves when its prediction is settled.

The classifier after layer d reads what that of an encoder with d layers would read. All are trained together
by the mean of their losses with weights d (Kaya et al. 2019; PABEE, Zhou et al. 2020, equation 5). A text
leaves by its own predictions alone, and the rest of the batch goes on without it, so that its answer does not
depend on the other texts of the batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from albertine.core.batch import Packed
from albertine.core.between_layers import between_layers
from albertine.core.exit_rule import ExitRule
from albertine.core.precision import without_autocast
from albertine.model.backend import Linear, current, outside_pass
from albertine.model.config import HeadInput
from albertine.model.loop import EncoderOutput, InterruptedLoop, LayerFunction, LayerLoop
from albertine.model.model import Model
from albertine.model.pooling import classifier_input, mean_rows
from albertine.model.rows import Rows, SelectedRows
from albertine.model.task_model import BASE, Classifier, fold_whitening

LEFT = -1
"""In place of the number of a text that has left, and of padding."""
EXITS = "exits."
"""Prefix of the layers before the last: `exits.1.weight` is that after the first."""


class EarlyExits(Classifier):
    """A classifier with one linear layer after every layer of the encoder.

    Attributes:
        mean, matrix: whitening as of `Classifier`, of the input after each layer, (D, H) and (D, H, H).
        depth: D, the layers of the encoder. outputs: number of logits.
        several: whether a text may have several classes, each with a sigmoid.
    """

    def __init__(
        self,
        base: Model,
        outputs: int,
        *,
        several: bool,
        pooling: HeadInput,
        dropout: float = 0.1,
        seed: int = 0,
        name: str = "classifier",
    ) -> None:
        """As `Classifier`."""
        super().__init__(base, outputs, pooling=pooling, dropout=dropout, seed=seed, name=name)
        self.several, self.depth, self.outputs = several, base.config.plan.depth, outputs
        hidden = base.config.hidden_size
        self.exits = nn.ModuleDict({str(d): Linear(hidden, outputs) for d in range(1, self.depth)})
        self.initialize_head(seed)

    def layer(self, d: int) -> nn.Module:
        """The linear layer after layer d of the encoder, from 1 on."""
        return self.get_submodule(self.name if d == self.depth else f"{EXITS}{d}")

    def inputs(self, packed: Packed) -> Tensor:
        """What the classifiers read after every layer, (S, D, H)."""
        states = self.base.encoder(packed, all_depths=True).hidden_states
        inputs = Inputs(self.base, self.pooling, states[0], packed.cu_seqlens)
        last = len(states) - 1  # the only state that the encoder has already passed through its final norm
        found = [inputs.after(x, packed.cu_seqlens, normed=d == last) for d, x in enumerate(states[1:], 1)]
        return torch.stack(found, dim=1)

    def every_logits(self, packed: Packed) -> Tensor:
        """Logits after every layer, (D, S, outputs) float32."""
        x_SDH = self.inputs(packed)
        return torch.stack([self.logits(d, x_SDH[:, d - 1]) for d in range(1, self.depth + 1)])

    def logits(self, d: int, x_SH: Tensor) -> Tensor:
        """Logits (S, outputs) float32 after layer d from its input, in the format of the head without early
        exit, whatever that of the encoder is."""
        with outside_pass():
            return self._logits(d, x_SH)

    def _logits(self, d: int, x_SH: Tensor) -> Tensor:
        if self.mean is not None and self.matrix is not None:
            x_SH = (x_SH - self.mean[d - 1]) @ self.matrix[d - 1]
        found: Tensor = self.layer(d)(F.dropout(x_SH, self.dropout, self.training))
        return found.float()

    @property
    def head(self) -> dict[str, Tensor]:
        """The layers by their names in files, with their whitening folded in."""
        own = {name: x.detach() for name, x in self.state_dict().items() if not name.startswith(BASE)}
        return fold_whitening(own)

    def forward(self, packed: Packed) -> Tensor:
        """Logits (S, outputs) after the last layer, float32."""
        return self.logits(self.depth, classifier_input(self.base, packed, self.pooling))

    @without_autocast
    def leaving(self, packed: Packed, rule: ExitRule) -> tuple[Tensor, Tensor]:
        """Logits (S, outputs) float32 of every text after the layer with which it leaves, and the number of
        that layer, int64 (S,); without gradients."""
        encoder, call = self.base.encoder, between_layers()
        encoder.embeddings.check_length(packed.max_length)
        with torch.no_grad(), encoder.forward_pass() as ops:
            batch, _ = ops.pad(packed, None)

            def compute() -> Exits:
                found = Exits.none(packed.num_sequences, self.outputs, packed.input_ids.device)
                exits = ExitLoop(self, rule, found)
                loop = exits if call is None else InterruptedLoop(exits, call)
                encoder.encode(ops, batch, self.depth, None, False, loop=loop)
                return found

            found = ops.isolate_non_finite(compute, lambda found: found.logits)
        return found.logits, found.layers


@dataclass
class Exits:
    """How texts have left.

    Attributes:
        logits: after the layer with which a text leaves, (S, outputs). layers: the number of that layer,
            (S,).
    """

    logits: Tensor
    layers: Tensor

    @classmethod
    def none(cls, sequences: int, outputs: int, device: torch.device) -> Exits:
        return cls(
            torch.zeros(sequences, outputs, device=device),
            torch.zeros(sequences, dtype=torch.int64, device=device),
        )


class Inputs:
    """What a classifier reads of the states, layer after layer.

    Args:
        embeddings_TH: the states before the first layer.
    """

    def __init__(self, base: Model, pooling: HeadInput, embeddings_TH: Tensor, cu_seqlens: Tensor) -> None:
        self._base, self._pooling, self._layers = base, pooling, 0
        self._sum_SH: Tensor | None = None
        if pooling == "depths":
            self._sum_SH = mean_rows(embeddings_TH.float(), cu_seqlens[:-1].long())

    def after(self, x_TH: Tensor, cu_seqlens: Tensor, *, normed: bool = False) -> Tensor:
        """The input (S, H) after the next layer, whose output is `x_TH`.

        Args:
            normed: `x_TH` has passed through the final norm of the encoder.
        """
        self._layers += 1
        if self._pooling == "cls":
            return self.of_summary(x_TH.index_select(0, self.summary(cu_seqlens)), normed=normed)
        means_SH = mean_rows(self._normed(x_TH, normed).float(), cu_seqlens[:-1].long())
        if self._sum_SH is None:
            return means_SH
        before_SH = self._sum_SH
        self._sum_SH = before_SH + (
            means_SH
            if self._base.encoder.final_norm is None
            else mean_rows(x_TH.float(), cu_seqlens[:-1].long())
        )
        return (before_SH + means_SH) / (self._layers + 1)

    def summary(self, cu_seqlens: Tensor) -> Tensor:
        """The summary row of every sequence, int64 (S,)."""
        first = self._base.config.summary == "first"
        return (cu_seqlens[:-1] if first else cu_seqlens[1:] - 1).long()

    def of_summary(self, x_SH: Tensor, *, normed: bool = False) -> Tensor:
        """The input (S, H) from the states of the summary rows."""
        x_SH = self._normed(x_SH, normed)
        with outside_pass():
            return self._base.pooled(x_SH)

    def select(self, stays_S: Tensor) -> None:
        """Keep some of the sequences, bool (S,)."""
        if self._sum_SH is not None:
            self._sum_SH = self._sum_SH[stays_S]

    def _normed(self, x_RH: Tensor, normed: bool) -> Tensor:
        norm = self._base.encoder.final_norm
        return x_RH if norm is None or normed else norm(x_RH)  # type: ignore[no-any-return]


class Settled:
    """Which texts leave after a layer, by the logits of all layers so far."""

    def __init__(self, rule: ExitRule, several: bool) -> None:
        self._rule, self._several = rule, several
        self._before: Tensor | None = None
        self._agreed: Tensor | None = None

    def after(self, logits_SC: Tensor) -> Tensor:
        """Whether each text leaves after the next layer, with these logits; bool (S,)."""
        if self._rule.confidence is not None:
            if self._several:
                sure_S = torch.sigmoid(logits_SC.abs()).amin(-1)
            else:
                sure_S = logits_SC.softmax(-1).amax(-1)
            return sure_S >= self._rule.confidence
        assert self._rule.patience is not None
        answer = logits_SC > 0 if self._several else logits_SC.argmax(-1, keepdim=True)
        if self._before is None or self._agreed is None:
            self._agreed = torch.zeros(len(answer), dtype=torch.int64, device=answer.device)
        else:
            same_S = (answer == self._before).all(-1)
            self._agreed = torch.where(same_S, self._agreed + 1, 0)
        self._before = answer
        return self._agreed >= self._rule.patience

    def select(self, stays_S: Tensor) -> None:
        """Keep some of the texts, bool (S,)."""
        if self._before is not None and self._agreed is not None:
            self._before, self._agreed = self._before[stays_S], self._agreed[stays_S]


class ExitLoop(LayerLoop):
    """The loop in which a text leaves when its prediction is settled.

    Args:
        found: filled in for the first sequences of a batch; further ones are padding.
    """

    def __init__(self, model: EarlyExits, rule: ExitRule, found: Exits) -> None:
        self._model, self._rule, self._found = model, rule, found

    def run(
        self,
        layer: LayerFunction,
        x_TH: Tensor,
        rows: Rows,
        depth: int,
        selected: SelectedRows | None,
        all_depths: bool,
    ) -> EncoderOutput:
        """As `LayerLoop.run`, without states: no row is left at the end."""
        model, settled = self._model, Settled(self._rule, self._model.several)
        inputs = Inputs(model.base, model.pooling, x_TH, rows.cu_seqlens)
        number_S = torch.arange(len(rows.cu_seqlens) - 1, device=x_TH.device)
        number_S[len(self._found.layers) :] = LEFT
        for d in range(1, depth + 1):
            if d == depth and model.pooling == "cls":  # of the last layer only the summary rows are read
                summary = inputs.summary(rows.cu_seqlens)
                selected = rows.select(current().padded_rows(summary, len(x_TH)))
                x_PH = layer(d - 1, x_TH.index_select(0, selected.indices), x_TH, selected.rows, rows)
                logits_SC = model.logits(d, inputs.of_summary(selected.restore_order(x_PH)[: len(summary)]))
            else:
                x_TH = layer(d - 1, x_TH, x_TH, rows, rows)
                logits_SC = model.logits(d, inputs.after(x_TH, rows.cu_seqlens))
            leaves_S = number_S != LEFT
            if d < depth:
                leaves_S = leaves_S & settled.after(logits_SC)
            if not bool(leaves_S.any()):  # synchronises with the device once a layer
                continue
            self._found.logits[number_S[leaves_S]] = logits_SC[leaves_S]
            self._found.layers[number_S[leaves_S]] = d
            number_S = number_S.masked_fill(leaves_S, LEFT)
            if bool((number_S == LEFT).all()):
                break
            index = _rows_to_compute(number_S != LEFT, rows.cu_seqlens)
            if index is not None:
                there_S = _any_in(index, rows.cu_seqlens)
                x_TH, rows = x_TH.index_select(0, index), rows.some_sequences(index)
                number_S = number_S[there_S]
                inputs.select(there_S)
                settled.select(there_S)
        return EncoderOutput(x_TH[:0])


def _rows_to_compute(stays_S: Tensor, cu_seqlens: Tensor) -> Tensor | None:
    """The rows of the texts that stay, and of others as many as the backend rounds up to, int64 ascending;
    None: these are all rows."""
    lengths = cu_seqlens.diff().long()
    stays_T = stays_S.repeat_interleave(lengths)
    total = len(stays_T)
    wanted = int(stays_T.sum())
    wanted, extra = current().rounded_rows(wanted), current().rounded_rows(wanted) - wanted
    if wanted >= total:
        return None
    if extra:
        stays_T[(~stays_T).nonzero()[:extra, 0]] = True
    return stays_T.nonzero()[:, 0]


def _any_in(index: Tensor, cu_seqlens: Tensor) -> Tensor:
    """Which sequences have a row among these, bool (S,)."""
    return torch.searchsorted(index, cu_seqlens.long()).diff() > 0
