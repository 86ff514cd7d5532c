"""An encoder with its pretraining heads, for padded batches in the public interface and packed ones
inside."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils._pytree import register_dataclass

from albertine.core.batch import Packed, from_padded, to_padded
from albertine.core.number_formats import InferencePrecision
from albertine.core.precision import without_autocast
from albertine.errors import SettingsError
from albertine.model.backend import tokens_per_pass
from albertine.model.config import EncoderConfig
from albertine.model.encoder import Encoder
from albertine.model.heads import LanguageModelHead, MaskedLMHead, Pooler, SentenceHead
from albertine.model.init import IsolatedInit, initialize
from albertine.model.loop import Ponder

HEADS = frozenset({"pooler", "mlm", "lm", "sop", "nsp"})


@dataclass(frozen=True)
class ModelOutput:
    """Output of a padded call.

    Attributes:
        last_hidden_state: (B, L, H), zeros at padding.
        pooler_output: (B, H), or None without a pooler.
        hidden_states: on request the embeddings and the output of every layer, each (B, L, H). The last of a
            pre-norm encoder is after its final norm. With halting, state d is the output after at most d
            steps; with a solver there are two, embeddings and fixed point.
        attentions: on request the attention weights of every layer, before dropout, each (B, N, L, L): that
            of query i for key j is [b, n, i, j]; zeros at padding, and in layers that a sequence did not
            reach because it had halted. With a solver there is one, of the layer at the fixed point.
    """

    last_hidden_state: Tensor
    pooler_output: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


register_dataclass(ModelOutput)  # otherwise DDP finds no tensors in it, and reduces no gradient


class Model(nn.Module, metaclass=IsolatedInit):
    """An encoder and its heads.

    Attributes:
        config: shape, plan and semantics.
        encoder, pooler, mlm, lm, sentence: the parts; a missing head is None.
        sentence_objective: objective of the sentence head: "sop", "nsp" or None.
        batch_tokens: maximum tokens of one inference pass; None: the default of the device.
    """

    def __init__(
        self,
        config: EncoderConfig,
        heads: Iterable[str] = ("pooler",),
        *,
        seed: int = 0,
        precision: InferencePrecision = "float32",
    ) -> None:
        """Build with random weights, unless the default device is "meta".

        Args:
            heads: any of "pooler", "mlm", "lm", and one of "sop" and "nsp"; a sentence head brings the
                pooler.
            seed: of the initial weights.

        Raises:
            SettingsError: an unknown head, or both sentence heads.
        """
        super().__init__()
        wanted = frozenset(heads)
        if unknown := sorted(wanted - HEADS):
            raise SettingsError(
                f"unknown head `{unknown[0]}`", remedy=f"Known heads: {', '.join(sorted(HEADS))}"
            )
        if {"sop", "nsp"} <= wanted:
            raise SettingsError("a model has one sentence head", remedy="Use sop or nsp")
        self.config = config
        self.sentence_objective = next(iter(wanted & {"sop", "nsp"}), None)
        self.batch_tokens: int | None = None
        self.encoder = Encoder(config, precision)
        self.pooler = Pooler(config) if wanted & {"pooler", "sop", "nsp"} else None
        self.mlm = MaskedLMHead(config) if "mlm" in wanted else None
        self.lm = LanguageModelHead(config) if "lm" in wanted else None
        self.sentence = SentenceHead(config) if self.sentence_objective else None
        if not self.encoder.embeddings.word.weight.is_meta:
            initialize(self, config, seed)

    @property
    def heads(self) -> frozenset[str]:
        """The arguments `heads` of this model."""
        present = {"pooler": self.pooler, "mlm": self.mlm, "lm": self.lm}
        names = {name for name, head in present.items() if head is not None}
        return frozenset(names | ({self.sentence_objective} if self.sentence_objective else set()))

    @property
    def precision(self) -> InferencePrecision:
        """Format of the matrix products: auto, float32, bfloat16, or for inference int8; parameters stay
        float32."""
        return self.encoder.precision

    @precision.setter
    def precision(self, value: InferencePrecision) -> None:
        self.encoder.precision = value

    @property
    def tokens_per_pass(self) -> int:
        """Maximum tokens of one inference pass; a longer sequence is computed alone."""
        return self.batch_tokens or tokens_per_pass(self.device)

    @property
    def device(self) -> torch.device:
        return self.encoder.embeddings.word.weight.device

    @without_autocast
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
    ) -> ModelOutput:
        """Encode a padded batch in the layout of Hugging Face; padding is removed before the encoder.

        Args:
            input_ids, attention_mask, token_type_ids: (B, L); the mask defaults to all real, the types to 0.
            output_hidden_states: also return the output of every layer.
            output_attentions: also return the attention weights of every layer. They are computed by plain
                operations, which are slower, and equal the fast ones up to rounding.
        """
        packed, index = from_padded(
            input_ids,
            attention_mask,
            token_type_ids,
            vocab_size=self.config.vocab_size,
            type_vocab_size=self.encoder.embeddings.num_segments,
            max_positions=self.encoder.embeddings.max_length,
        )
        out = self.encoder(packed, all_depths=output_hidden_states, attention_weights=output_attentions)
        batch, length = input_ids.shape
        pooled = states = attentions = None
        if self.pooler is not None:
            pooled = self.pooler(out.last_hidden.index_select(0, self.summary_rows(packed)))
        if out.hidden_states is not None:
            states = tuple(to_padded(x, index, batch, length) for x in out.hidden_states)
        if out.attentions is not None:
            columns = packed.position_ids.split_with_sizes(packed.lengths)
            attentions = tuple(_padded_weights(layer, columns, length) for layer in out.attentions)
        return ModelOutput(to_padded(out.last_hidden, index, batch, length), pooled, states, attentions)

    def pretraining_forward(
        self,
        packed: Packed,
        mlm_rows: Tensor,
        *,
        depth: int | None = None,
        loops: int | None = None,
        sentence: bool = True,
    ) -> tuple[Tensor, Tensor | None]:
        """Logits of the pretraining heads; the last layer computes only the rows that they read.

        Args:
            mlm_rows: int64 (P,) predicted positions in T, none twice.
            depth, loops: as of `Encoder.forward`; default all layers.
            sentence: whether to compute sentence logits, where there is a head.

        Returns:
            Vocabulary logits (P, V), and sentence logits (S, 2) or None.
        """
        return self.pondering_forward(packed, mlm_rows, depth=depth, loops=loops, sentence=sentence)[:2]

    @without_autocast
    def pondering_forward(
        self,
        packed: Packed,
        mlm_rows: Tensor,
        *,
        depth: int | None = None,
        loops: int | None = None,
        sentence: bool = True,
    ) -> tuple[Tensor, Tensor | None, Ponder | None]:
        """As `pretraining_forward`, with the ponder time of an encoder that halts."""
        rows = self._read_rows(packed, mlm_rows, sentence)
        with self.encoder.forward_pass():
            out = self.encoder(packed, depth=depth, loops=loops, rows=rows)
            return *self._logits(out.last_hidden, len(mlm_rows), sentence), out.ponder

    @without_autocast
    def elastic_forward(
        self, packed: Packed, mlm_rows: Tensor, *, loops: int, shallow_loops: int, sentence: bool = True
    ) -> tuple[tuple[Tensor, Tensor | None], tuple[Tensor, Tensor | None]]:
        """`pretraining_forward` with `loops` and with the fewer `shallow_loops` loops of the core, in one
        pass, as of `Encoder.forward`."""
        if self.mlm is None:
            raise SettingsError("this model has no masked-LM head", remedy='Build it with heads={"mlm", …}')
        rows = self._read_rows(packed, mlm_rows, sentence)
        with self.encoder.forward_pass():
            out = self.encoder(packed, loops=loops, shallow_loops=shallow_loops, rows=rows)
            deep = self._logits(out.last_hidden, len(mlm_rows), sentence)
            return deep, self._logits(out.shallow, len(mlm_rows), sentence)

    def _read_rows(self, packed: Packed, mlm_rows: Tensor, sentence: bool) -> Tensor:
        """The rows that the pretraining heads read, int64 (R,): before `mlm_rows` the summary rows, if there
        are sentence logits."""
        if self.mlm is None and self.lm is None:
            raise SettingsError("this model has no masked-LM head", remedy='Build it with heads={"mlm", …}')
        if self.sentence is None or not sentence:
            return mlm_rows
        return torch.cat([self.summary_rows(packed), mlm_rows])

    def _logits(self, x_RH: Tensor, predictions: int, sentence: bool) -> tuple[Tensor, Tensor | None]:
        """Vocabulary logits (P, V), and sentence logits (S, 2) or None, of the states of `_read_rows`."""
        words = self.mlm or self.lm
        assert words is not None  # `_read_rows` refuses a model without
        summary_SH, masked_PH = torch.split(x_RH, [len(x_RH) - predictions, predictions])
        head = self.sentence if sentence else None
        order = None if head is None else head(self.pooled(summary_SH))
        return words(masked_PH, self.encoder.embeddings), order

    def summary_rows(self, packed: Packed) -> Tensor:
        """The summary row of every sequence, int64 (S,): that of [CLS]."""
        return packed.first_tokens if self.config.summary == "first" else packed.last_tokens

    def pooled(self, summary_SH: Tensor) -> Tensor:
        """Pooler output (S, H) of summary rows."""
        if self.pooler is None:
            raise SettingsError("this model has no pooler", remedy='Build it with heads={"pooler", …}')
        return self.pooler(summary_SH)  # type: ignore[no-any-return]

    def mlm_logits(self, rows_PH: Tensor) -> Tensor:
        """Masked-LM logits (P, V) of encoder rows (P, H)."""
        if self.mlm is None:
            raise SettingsError("this model has no masked-LM head", remedy='Build it with heads={"mlm", …}')
        return self.mlm(rows_PH, self.encoder.embeddings)  # type: ignore[no-any-return]

    def sentence_logits(self, summary_SH: Tensor) -> Tensor:
        """Sentence logits (S, 2) of summary rows (S, H)."""
        if self.sentence is None:
            raise SettingsError(
                "this model has no sentence head", remedy='Build it with heads={"sop"} or {"nsp"}'
            )
        return self.sentence(self.pooled(summary_SH))  # type: ignore[no-any-return]


def _padded_weights(weights: Sequence[Tensor], columns: Sequence[Tensor], length: int) -> Tensor:
    """Attention weights (N, n, n) of each sequence, whose tokens stand in these columns, as (B, N, L, L)."""
    tables = []
    for own_Nnn, places in zip(weights, columns, strict=True):
        table_NLL = own_Nnn.new_zeros(len(own_Nnn), length, length)
        table_NLL[:, places[:, None], places] = own_Nnn
        tables.append(table_NLL)
    return torch.stack(tables)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Context in which a model is in evaluation mode; afterwards every module has its mode back."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
