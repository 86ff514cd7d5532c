"""The settings of a fine-tuning run, as in a recipe."""

from __future__ import annotations

import operator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, SerializeAsAny, model_validator

from albertine.core.settings import ComputeSettings, RunSettings, Settings
from albertine.tasks.families import of_its_kind
from albertine.tasks.kind_settings import TaskChoice

PAPER_RATE, NARROW_RATE = 2e-5, 5e-4
"""The learning rate for models of BERT's width, and the highest for narrow ones (docs/decisions/018)."""
MUON_RATE = 0.01
"""For every width, as the size of Muon's steps does not depend on it; half of its rate in pretraining
(docs/experiments)."""


class EncoderChoice(Settings):
    """The pretrained encoder, and changes to it before training."""

    folder: Path = Field(
        description="model or run folder, released model, or owner/name[@revision] on the hub"
    )
    unshare: Literal["no", "all", "attention", "ffn", "share"] = Field(
        "no",
        description="give every layer its own copy of the shared weights, or of one part; "
        "share: the reverse, all layers get the mean of their weights",
    )
    groups: int | None = Field(
        None, ge=1, description="copies for unshare, one for each run of layers; default: one a layer"
    )
    num_hidden_layers: int | None = Field(None, ge=1, description="more or fewer loops than the checkpoint")
    dropout: float | None = Field(
        None,
        ge=0,
        lt=1,
        description="hidden and attention dropout; default: the checkpoint's own; v2 models: 0, BERT: 0.1",
    )
    classifier_dropout: float = Field(0.1, ge=0, lt=1, description="dropout before the head of the task")

    @model_validator(mode="after")
    def _copies(self) -> EncoderChoice:
        if self.groups is not None and self.unshare in ("no", "share"):
            raise ValueError(
                "encoder.groups is the number of copies of encoder.unshare: all, attention or ffn"
            )
        return self


class TuningChoice(ComputeSettings):
    """How it is optimised and for how long. Defaults: the smaller settings of table 14."""

    epochs: float = Field(3, gt=0, description="passes over the training rows, where steps is none")
    steps: int | None = Field(None, ge=1, description="length of the run in updates, instead of epochs")
    batch_size: int = Field(32, ge=1, description="examples per update, over all processes")
    micro_batch_tokens: int = Field(
        16384, ge=64, description="most tokens in one forward pass of one process"
    )
    optimizer: Literal["adamw", "muon"] = Field(
        "adamw",
        description="muon: for the matrices of the blocks, AdamW for all else; a small model soon learns to "
        "answer from passages with it",
    )
    learning_rate: float | None = Field(
        None,
        gt=0,
        description="the peak; default: 2e-5 at a hidden size of 768 or more, and more for a narrower model: "
        "with the cube of 768 over its hidden size, at most 5e-4; of muon 0.01",
    )
    embedding_rate: float | None = Field(
        None,
        gt=0,
        description="learning rate of the word vectors over that of the rest; default: 1, and for a "
        "classifier of means below a hidden size of 768 as many times as the word vectors are longer "
        "than new ones, at most 8",
    )
    whiten: bool = Field(
        True,
        description="a classifier of means (task.pooling) learns from whitened vectors, which is faster; "
        "saved models are of the same form either way",
    )
    schedule: Literal["linear", "wsd", "constant"] = Field(
        "linear",
        description="of the learning rate after the warm-up: linear falls to 0, wsd stays and falls at the "
        "end, constant stays",
    )
    warmup: float = Field(0.1, ge=0, lt=1, description="share of the run in which the rate rises")
    weight_decay: float = Field(0.01, ge=0, description="of matrices; biases and norms have none")
    class_weights: Literal["none", "balanced"] = Field(
        "none", description="balanced: a class counts as much as any other, however rare"
    )
    adversarial: float = Field(
        0.0, ge=0, description="FGM: length of the step against the word vectors, often 0.5 to 1; 0: none"
    )
    layer_decay: float = Field(
        1.0, gt=0, le=1, description="learning rate of a layer over that of the layer above it"
    )
    crf_rate: float = Field(
        1000.0, gt=0, description="learning rate of a CRF over that of the head, as bert4keras has it"
    )
    teacher: Path | None = Field(
        None, description="model that was tuned for this task, whose outputs for training rows are learned"
    )
    soft: float = Field(1.0, gt=0, description="weight of the distillation loss, beside that of the labels")
    temperature: float = Field(2.0, gt=0, description="of the softmax over classes in the distillation loss")
    exits: bool = Field(
        False,
        exclude_if=operator.not_,  # as if it were not there: runs of before keep their digests
        description="a head after every layer, so that `predict --exit` may end early; the loss is the mean "
        "of theirs, that of layer d with weight d",
    )
    ema: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="evaluate and save a moving average of the weights; its decay, often 0.999",
    )
    clip: float | None = Field(1.0, gt=0, description="most length of the gradient; none: any")

    def rate(self, hidden_size: int) -> float:
        """The peak learning rate: given, or by the optimizer and the width of the model."""
        if self.learning_rate is not None:
            return self.learning_rate
        if self.optimizer == "muon":
            return MUON_RATE
        return min(NARROW_RATE, PAPER_RATE * max(1.0, 768 / hidden_size) ** 3)


class TuningWatch(Settings):
    """Intervals of logging, evaluation and checkpoints."""

    log_every: int = Field(20, ge=1, description="steps from line to line of metrics.jsonl")
    evaluations: int = Field(3, ge=1, description="times the dev set is scored, evenly over the run")
    early_stopping: int | None = Field(
        None,
        ge=1,
        description="end after so many evaluations without a new best; it needs `evaluations` of 2 more",
    )
    keep: int = Field(2, ge=2, description="checkpoints kept")
    tensorboard: bool = Field(True, description="write tensorboard/ too, where it is installed")
    report: bool = Field(True, description="write report/ with tables and pictures when the run is done")


class FinetuneSettings(RunSettings):
    """One fine-tuning run."""

    example = (
        "name=reviews encoder.folder=albertine-mini-en task.train=train.csv task.dev=dev.csv "
        "task.text=review task.label=verdict"
    )
    task: Annotated[SerializeAsAny[TaskChoice], BeforeValidator(of_its_kind)]
    encoder: EncoderChoice
    training: TuningChoice = TuningChoice()
    watching: TuningWatch = TuningWatch()

    @model_validator(mode="after")
    def _something_differs(self) -> FinetuneSettings:
        if (setting := self.task.learns_from_dropout) and self.encoder.dropout == 0:
            raise ValueError(f"{setting} learns from dropout alone; set encoder.dropout, for example 0.1")
        return self
