"""What of a preset's encoder is to differ in a run."""

from __future__ import annotations

from typing import Any

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

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
from albertine.settings import Settings


class EncoderChanges(Settings):
    """Fields of a preset's encoder that are to differ, as `EncoderConfig` names them; None: as it is.

    The vocabulary is the corpus', and what depths share is `model.sharing`.
    """

    hidden_size: int | None = None
    num_hidden_layers: int | None = Field(None, ge=1, le=MAX_DEPTH)
    num_attention_heads: int | None = None
    intermediate_size: int | None = None
    embedding_size: int | None = Field(
        None, description="default: the preset's, or hidden_size where the preset has the two equal"
    )
    hidden_act: Activation | None = None
    hidden_dropout_prob: float | None = None
    attention_probs_dropout_prob: float | None = None
    classifier_dropout_prob: float | None = None
    max_position_embeddings: int | None = None
    type_vocab_size: int | None = None
    initializer_range: float | None = None
    layer_norm_eps: float | None = None
    pad_token_id: int | None = None
    embedding_mapping: Mapping | None = None
    feed_forward_dropout: bool | None = None
    sentence_dropout: bool | None = None
    initialization: Initialization | None = None
    positions: Positions | None = Field(
        None,
        description="learned; rotary or relative: no table, only distances; none: see position_signal",
    )
    rotary_base: float | None = None
    norm: Norm | None = Field(None, description="post: behind each block, as in ALBERT; pre: before it")
    feed_forward: FeedForward | None = Field(None, description="plain, or gated as in ModernBERT")
    biases: bool | None = None
    qk_norm: bool | None = None
    clamp_positions: int | None = None
    relative_biases: RelativeBiasesOf | None = None
    embedding_norm: bool | None = None
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
    halting_epsilon: float | None = None
    halting_limit: HaltingLimit | None = None
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
