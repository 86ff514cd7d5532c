"""What of a preset's encoder is to differ in a run."""

from __future__ import annotations

from typing import Any

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from albertine.core.settings import Settings
from albertine.model.config import (
    Activation,
    FeedForward,
    HaltingLimit,
    HaltingRule,
    Initialization,
    Mapping,
    Norm,
    Positions,
    PositionSignal,
    RelativeBiasesOf,
    Solver,
    StepSignal,
    Summary,
)
from albertine.model.config_checks import MAX_DEPTH


class EncoderChanges(Settings):
    """Fields of a preset's encoder that are to differ, as `EncoderConfig` names them; None: as it is.

    The vocabulary is the corpus', and what depths share is `model.sharing`.
    """

    hidden_size: int | None = Field(None, description="width of the hidden states")
    num_hidden_layers: int | None = Field(
        None, ge=1, le=MAX_DEPTH, description="depths: how many layers are computed"
    )
    num_attention_heads: int | None = Field(None, description="heads, which divide hidden_size")
    intermediate_size: int | None = Field(None, description="width inside the feed-forward part")
    embedding_size: int | None = Field(
        None, description="default: the preset's, or hidden_size where the preset has the two equal"
    )
    hidden_act: Activation | None = Field(None, description="gelu_new (tanh), gelu (erf) or relu")
    hidden_dropout_prob: float | None = Field(None, description="dropout of hidden states")
    attention_probs_dropout_prob: float | None = Field(None, description="dropout of attention weights")
    classifier_dropout_prob: float | None = Field(None, description="dropout before a classifier")
    max_position_embeddings: int | None = Field(None, description="most tokens of a text")
    type_vocab_size: int | None = Field(None, description="kinds of segments; 0: segments are not told apart")
    initializer_range: float | None = Field(None, description="deviation of new weights")
    layer_norm_eps: float | None = Field(None, description="epsilon of LayerNorms")
    pad_token_id: int | None = Field(None, description="piece that stands for padding")
    embedding_mapping: Mapping | None = Field(
        None,
        description="from embedding_size to hidden_size: if_needed; always, as in transformers; words: "
        "before positions and segments are added, as brightmart's",
    )
    feed_forward_dropout: bool | None = Field(
        None, description="false: none behind the feed-forward part, as transformers' ALBERT"
    )
    sentence_dropout: bool | None = Field(
        None, description="true: dropout before the sentence head, as transformers' ALBERT"
    )
    initialization: Initialization | None = Field(None, description="truncated_normal, or normal")
    positions: Positions | None = Field(
        None,
        description="learned; rotary or relative: no table, only distances; none: see position_signal",
    )
    rotary_base: float | None = Field(
        None, description="rotary: the slowest angle a place is 1 / rotary_base"
    )
    norm: Norm | None = Field(None, description="post: behind each block, as in ALBERT; pre: before it")
    feed_forward: FeedForward | None = Field(None, description="plain, or gated as in ModernBERT")
    biases: bool | None = Field(None, description="false: none in linear layers and LayerNorms")
    qk_norm: bool | None = Field(None, description="true: bring queries and keys to one length")
    clamp_positions: int | None = Field(
        None, description="relative positions: larger distances count as this one; 0: none does"
    )
    relative_biases: RelativeBiasesOf | None = Field(
        None, description="relative positions: block, each has its own; tied: all have those of the first"
    )
    embedding_norm: bool | None = Field(None, description="false: embeddings are not normalised, as in XLNet")
    summary: Summary | None = Field(
        None, description="the token that stands for a sequence; default: where the corpus' tokenizer has it"
    )
    position_signal: PositionSignal | None = Field(
        None, description="added before every step for the place of a token: sinusoid, learned or none"
    )
    step_signal: StepSignal | None = Field(None, description="the same for the number of the step")
    halting: HaltingRule | None = Field(
        None,
        description="basic or accumulated: every token decides how many steps it takes, num_hidden_layers at "
        "most; needs one block for all depths",
    )
    halting_epsilon: float | None = Field(
        None, description="a token halts where its probabilities sum up to more than one less this"
    )
    halting_limit: HaltingLimit | None = Field(
        None,
        description="what a token gets that has not halted at the last step: its remainder, or as in the "
        "reference its probability alone",
    )
    solver: Solver | None = Field(
        None,
        description="anderson or broyden: run the block that all depths share to its fixed point, by "
        "num_hidden_layers iterations at most; needs input_injection",
    )
    tolerance: float | None = Field(None, description="residual at which a fixed point counts as found")
    input_injection: bool | None = Field(
        None, description="add a map of the embeddings to queries, keys and values of every depth"
    )

    @model_serializer(mode="wrap")
    def _changes(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Only what is changed, so that a settings file stays readable."""
        return {name: value for name, value in handler(self).items() if value is not None}
