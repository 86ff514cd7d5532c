"""Everything a pretraining run can be told, with the defaults that follow the paper where it gives one."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from albertine.model.config import MAX_DEPTH, Activation, Initialization, Mapping
from albertine.settings import Computing, RunSettings, Settings

BASE_BATCH, LAMB_RATE = (
    4096,
    0.00176,
)  # ALBERT, section 4.1; the rate belongs to that batch and to no smaller one
ADAMW_RATE, ADAMW_BATCH = 1e-4, 256  # BERT and RoBERTa at batch 256


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

    @model_serializer(mode="wrap")
    def _changes(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Only what is changed, so that a settings file stays readable."""
        return {name: value for name, value in handler(self).items() if value is not None}


class ModelChoice(Settings):
    """Which encoder: a preset, perhaps changed, or a model folder to go on from."""

    preset: str | None = Field(None, description="name of a preset; `albertine info` lists them")
    start_from: Path | None = Field(
        None, description="model folder, or released model, whose weights to go on from"
    )
    sharing: Literal["preset", "all", "attention", "ffn", "none"] = Field(
        "preset", description="what all depths share"
    )
    embeddings: Literal["reference", "wide"] = Field(
        "reference",
        description="start of the embedding tables: Google's, or a wider one with sinusoids for positions, "
        "which ends the plateau of a small model sooner",
    )
    output_bias: Literal["zeros", "unigram"] = Field(
        "zeros",
        description="start of the masked-LM bias: Google's zeros, or the log frequencies of the corpus, "
        "which saves the steps in which a model learns nothing else",
    )
    change: EncoderChanges = Field(
        EncoderChanges(), description="fields of the encoder to change, for example hidden_size: 256"
    )

    @model_validator(mode="after")
    def _one_origin(self) -> ModelChoice:
        if (self.preset is None) == (self.start_from is None):
            raise ValueError("give model.preset or model.start_from, and not both")
        chosen = (self.sharing, self.embeddings, self.output_bias)
        own = self.change != EncoderChanges() or chosen != ("preset", "reference", "zeros")
        if self.start_from is not None and own:
            raise ValueError(
                "model.change, sharing, embeddings and output_bias belong to a preset; "
                "weights bring their own"
            )
        return self


class Masking(Settings):
    """Masked-LM choices, section 3.1 of the ALBERT paper."""

    probability: float = Field(0.15, gt=0, lt=1)
    ngram: int = Field(
        3, ge=1, le=10, description="longest run of words masked together; p(n) is proportional to 1/n"
    )
    favor_shorter: bool = True
    whole_word: bool = True
    permutation: bool = Field(False, description="also shuffle further n-grams and predict them")
    max_predictions: int | None = Field(
        None, ge=1, description="Google's fixed limit (20); default 15 % of the length"
    )


class ObjectiveChoice(Settings):
    """What is predicted."""

    pairs: Literal["sop", "nsp", "none"] = "sop"
    max_length: int = Field(128, ge=8)
    short_probability: float = Field(0.1, ge=0, le=1)
    reference_defects: bool = Field(False, description="reproduce the reference's cross-document pairs")
    masking: Masking = Masking()


class TrainingChoice(Computing):
    """How it is optimised and for how long."""

    batch_size: int = Field(256, ge=1, description="sequences per update, over all processes")
    micro_batch_tokens: int = Field(
        16384, ge=64, description="most tokens in one forward pass of one process"
    )
    steps: int | None = Field(None, ge=1)
    minutes: float | None = Field(
        None, gt=0, description="wall-clock budget instead of steps, counted over restarts"
    )
    optimizer: Literal["lamb", "adamw"] = "lamb"
    learning_rate: float | None = Field(
        None,
        gt=0,
        description="default: 0.00176 at 4096 (lamb), 1e-4 at 256 (adamw), scaled by the square root",
    )
    schedule: Literal["linear", "wsd", "constant"] = "linear"
    warmup: float = Field(0.025, ge=0, lt=1, description="share of the run; the paper's 3125 of 125000")
    decay: float = Field(0.2, gt=0, le=1, description="share of the run over which wsd decays")
    weight_decay: float = Field(0.01, ge=0)
    clip: float | None = Field(1.0, gt=0)
    workers: int = Field(1, ge=0, description="processes that draw masks ahead of time")

    @model_validator(mode="after")
    def _one_length(self) -> TrainingChoice:
        if (self.steps is None) == (self.minutes is None):
            raise ValueError("give training.steps or training.minutes, and not both")
        return self

    @property
    def rate(self) -> float:
        """The peak learning rate: given, or the published one scaled with the square root of the batch."""
        if self.learning_rate is not None:
            return self.learning_rate
        base, batch = (LAMB_RATE, BASE_BATCH) if self.optimizer == "lamb" else (ADAMW_RATE, ADAMW_BATCH)
        return float(base * (self.batch_size / batch) ** 0.5)


class Watching(Settings):
    """How often to look and to save; `every` counts steps."""

    log_every: int = Field(10, ge=1)
    evaluate_every: int = Field(500, ge=1)
    evaluate_sequences: int = Field(512, ge=1, description="held-out sequences judged each time")
    checkpoint_every: int = Field(500, ge=1)
    keep: int = Field(3, ge=2, description="checkpoints kept")
    tensorboard: bool = True
    stop_on_alarm: bool = False


class PretrainingSettings(RunSettings):
    """One pretraining run."""

    corpus: Path
    model: ModelChoice
    objective: ObjectiveChoice = ObjectiveChoice()
    training: TrainingChoice
    watching: Watching = Watching()
