"""Everything a pretraining run can be told, with the defaults that follow the paper where it gives one."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import Field, SerializerFunctionWrapHandler, field_validator, model_serializer, model_validator

from albertine.core.settings import ComputeSettings, RunSettings, Settings
from albertine.model.config import (
    MAX_DEPTH,
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
from albertine.model.presets import preset
from albertine.objectives.distillation import Lessons
from albertine.objectives.masking import MaskSettings
from albertine.objectives.prediction_spans import SpanSettings
from albertine.objectives.stream_settings import StreamSettings
from albertine.training.optimizers import ADAMW_SHARE, OptimizerKind
from albertine.training.schedules import published_rate

SHORTEST = 8
"""The least `max_length`."""
SHORTEST_PAIRS = 32
"""Most chunks of 29 tokens (32 without the special ones) are parts of two sentences; in less room there is
one, which has no order, or two of which only some words are left."""


Sharing = Literal["preset", "all", "attention", "ffn", "none"]


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


WIDTHS = ("hidden_size", "num_attention_heads", "intermediate_size", "embedding_size")


class Student(Settings):
    """What of a model is to be smaller; None: as it is there."""

    depth: int | None = Field(
        None, ge=1, le=MAX_DEPTH, description="depths of the student, each begun with one of the model's"
    )
    depths: tuple[int, ...] | None = Field(
        None, description="which depths those are, from 0; default: the first of as many equal parts"
    )
    sharing: Literal["all", "attention", "ffn", "none"] | None = Field(
        None, description="what its depths share; a block for several depths begins with their mean"
    )
    hidden_size: int | None = Field(None, ge=1, description="width of the hidden states")
    num_attention_heads: int | None = Field(None, ge=1, description="heads, which divide hidden_size")
    intermediate_size: int | None = Field(None, ge=1, description="width inside the feed-forward part")
    embedding_size: int | None = Field(None, ge=1, description="width of the word embeddings")

    @model_validator(mode="after")
    def _smaller(self) -> Student:
        if self.depths == ():
            raise ValueError("depths names none; name one at least, or leave it out")
        if self.depth is not None and self.depths is not None and len(self.depths) != self.depth:
            raise ValueError(f"depth is {self.depth} and depths names {len(self.depths)}; leave one out")
        if all(value is None for value in self.__dict__.values()):
            raise ValueError("nothing differs; set depth, sharing or a width, or leave model.student out")
        return self

    @property
    def widths(self) -> dict[str, int]:
        """The sizes that differ, as `EncoderConfig` names them."""
        return {name: value for name in WIDTHS if (value := getattr(self, name)) is not None}


class Distillation(Settings):
    """Whom a model learns from, and what, beside the labels."""

    teacher: Path = Field(
        description="model of any layout that is read, run folder, released model or owner/name on the hub"
    )
    temperature: float = Field(2.0, gt=0, description="of the soft targets")
    soft: float = Field(
        1.0,
        ge=0,
        description="weight of the teacher's chances of every piece for a masked token; 0 for a teacher "
        "without a masked-LM head, such as XLNet",
    )
    hidden: float = Field(1.0, ge=0, description="weight of its hidden states, depths mapped evenly")
    attention: float = Field(
        0.1,
        ge=0,
        description="weight of its attention maps, or where heads differ in number, of relations; "
        "these are nats of a whole row and ten times as large as the others",
    )

    @model_validator(mode="after")
    def _something_is_learned(self) -> Distillation:
        if not (self.soft or self.hidden or self.attention):
            raise ValueError("soft, hidden and attention are all 0, so nothing is learned of the teacher")
        return self

    @property
    def lessons(self) -> Lessons:
        return Lessons(self.soft, self.hidden, self.attention, self.temperature)


class ModelChoice(Settings):
    """Which encoder: a preset, perhaps changed, or a model folder to go on from."""

    preset: str | None = Field(None, description="name of a preset; `albertine info` lists them")
    start_from: Path | None = Field(
        None,
        description="model or run folder, released model or owner/name on the hub, to go on from",
    )
    student: Student | None = Field(
        None, description="with start_from: what is to be smaller than there, such as depth: 2"
    )
    sharing: Sharing | int = Field(
        "preset", description="what all depths share; or a number of groups, each with a block of its own"
    )
    own: tuple[Literal["norms", "residuals", "injection"], ...] = Field(
        (), description="what every depth has to itself although its blocks are shared"
    )
    low_rank: int = Field(0, ge=0, description="rank of what every depth adds to its shared blocks")
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

    @field_validator("sharing", mode="before")
    @classmethod
    def _way(cls, given: object) -> object:
        # Said here, because pydantic tells of a choice of types as of two fields.
        if isinstance(given, str) and given.isdecimal():
            given = int(given)  # a command line has only words
        if given in get_args(Sharing) or (type(given) is int and given >= 1):
            return given
        raise ValueError(f"should be {', '.join(get_args(Sharing))}, or a number of groups")

    @field_validator("preset")
    @classmethod
    def _known_preset(cls, given: str | None) -> str | None:
        if given is not None:
            preset(given)
        return given

    @model_validator(mode="after")
    def _one_origin(self) -> ModelChoice:
        if (self.preset is None) == (self.start_from is None):
            raise ValueError("give model.preset or model.start_from, and not both")
        chosen = (self.sharing, self.own, self.low_rank, self.embeddings, self.output_bias)
        changed = self.change != EncoderChanges() or chosen != ("preset", (), 0, "reference", "zeros")
        if self.start_from is not None and changed:
            raise ValueError(
                "model.change, sharing, own, low_rank, embeddings and output_bias belong to a preset; "
                "weights bring their own"
            )
        if self.start_from is None and self.student is not None:
            raise ValueError(
                "model.student is what is smaller than model.start_from, which is not given; a preset has "
                "model.change"
            )
        return self


class Masking(Settings):
    """Masked-LM choices, section 4.1 of the ALBERT paper."""

    probability: float = Field(0.15, gt=0, lt=1, description="share of the tokens to predict")
    ngram: int = Field(
        3, ge=1, le=10, description="longest run of words masked together; p(n) is proportional to 1/n"
    )
    favor_shorter: bool = Field(
        True, description="ngram: short runs are likelier; false: the same weights in reverse"
    )
    whole_word: bool = Field(
        True, description="hide words, not single tokens; what a word is `prepare --words` says"
    )
    permutation: bool = Field(False, description="also shuffle further n-grams and predict them")
    max_predictions: int | None = Field(
        None, ge=1, description="Google's fixed limit (20); none: `probability` alone limits"
    )
    masked: float = Field(0.8, ge=0, le=1, description="of the tokens to predict, the share shown as [MASK]")
    random: float = Field(
        0.1, ge=0, le=1, description="the share shown as a random token; the rest is shown as it is"
    )

    @model_validator(mode="after")
    def _shares(self) -> Masking:
        if self.masked + self.random > 1 + 1e-9:
            raise ValueError(f"masked {self.masked:g} and random {self.random:g} are more than all tokens")
        return self


class Permutation(Settings):
    """How a permutation LM reads and predicts, as XLNet does (1906.08237, sections 2.2 to 2.5)."""

    reuse: int = Field(
        0,
        ge=0,
        description="tokens of a segment that were read in the step before, with two pieces of text, [SEP] "
        "and [CLS] behind them; XLNet: half of max_length. 0: segments are plain text",
    )
    block: int | None = Field(
        None, ge=1, description="tokens of one permutation; default: as many as divide a segment's halves"
    )
    predictions: int | None = Field(
        None, ge=1, description="tokens predicted of a segment; default: a sixth of max_length"
    )
    ngram: int = Field(5, ge=1, le=20, description="longest span of words; p(n) is proportional to 1/n")
    alpha: int = Field(6, ge=1, description="a span of n words has a context of n * alpha / beta tokens")
    beta: int = Field(1, ge=1, description="see alpha")
    both_directions: bool = Field(False, description="half of a batch reads the text from its end")


class ObjectiveChoice(Settings):
    """What is predicted."""

    kind: Literal["masked", "causal", "permutation"] = Field(
        "masked",
        description="masked: hidden tokens from all around them; causal: each token from those before it; "
        "permutation: tokens in a drawn order, as XLNet",
    )
    memory: int = Field(
        0,
        ge=0,
        description="tokens of each sequence that its next segment may look at; of a masked objective 0 is "
        "what ALBERT does, and otherwise sequences go on from step to step",
    )
    permutation: Permutation = Permutation()
    pairs: Literal["sop", "nsp", "none"] = Field(
        "sop",
        description="what of two segments is told: sop, which comes first; nsp, whether they belong "
        "together; none: samples are one passage",
    )
    max_length: int = Field(
        128,
        ge=SHORTEST,
        description="tokens of a sample, special pieces included; default: 128, or the positions of the "
        "encoder, or of a teacher, if fewer",
    )
    short_probability: float = Field(
        0.1,
        ge=0,
        le=1,
        description="share of documents that are cut into samples of a drawn, shorter length: two or three "
        "times that share of the samples",
    )
    reference_defects: bool = Field(
        False,
        description="the reference's defects: pairs across documents, n-grams across [SEP], spans of pieces "
        "in a permutation",
    )
    repeats: float = Field(
        0.0,
        ge=0,
        le=1,
        description="share of samples that are a passage and an excerpt of it, to learn looking up; "
        "they have no sentence order",
    )
    masking: Masking = Masking()
    ponder: float | None = Field(
        None,
        ge=0,
        description="weight of the steps of a token beside the other losses, for model.change.halting; "
        "default 0.01",
    )
    jacobian: float | None = Field(
        None,
        gt=0,
        description="with model.change.solver: weight of the size of a step's Jacobian beside the other "
        "losses, which makes its fixed point easier to find; the paper's are about 2",
    )
    jacobian_frequency: float = Field(0.35, gt=0, le=1, description="share of the passes that compute it")
    distillation: Distillation | None = Field(
        None, description="learn from a teacher too: distillation.teacher and the weights of its lessons"
    )

    @model_validator(mode="after")
    def _excerpts_are_segments(self) -> ObjectiveChoice:
        if self.repeats and self.pairs == "none":
            raise ValueError(
                "an excerpt is a second segment; set objective.pairs to sop or nsp, or repeats to 0"
            )
        return self

    @model_validator(mode="after")
    def _a_teacher_answers_samples(self) -> ObjectiveChoice:
        if self.distillation is not None and self.streamed:
            raise ValueError(
                "a teacher is asked for masked tokens of single samples; set objective.kind: masked and "
                "memory: 0, or leave objective.distillation out"
            )
        return self

    @model_validator(mode="after")
    def _streams_have_no_pairs(self) -> ObjectiveChoice:
        if self.streamed and self.pairs != "none":
            what = "objective.memory is" if self.kind == "masked" else f"objective.kind {self.kind} is"
            raise ValueError(
                f"{what} of text that goes on from step to step, and pairs {self.pairs} are single samples; "
                "set objective.pairs: none"
            )
        if self.kind != "permutation" and self.permutation != Permutation():
            raise ValueError(
                f"objective.permutation belongs to objective.kind permutation, and it is {self.kind}"
            )
        if self.kind != "masked" and self.masking != Masking():
            usual = ((name, field.default) for name, field in Masking.model_fields.items())
            back = [f"{name}={value}" for name, value in usual if getattr(self.masking, name) != value]
            instead = ", or say objective.permutation" if self.kind == "permutation" else ""
            raise ValueError(
                f"objective.masking belongs to objective.kind masked, and it is {self.kind}; leave it "
                f"out{instead}; over a recipe write objective.masking.{', objective.masking.'.join(back)}"
            )
        return self

    @property
    def streamed(self) -> bool:
        """Whether sequences go on from step to step; otherwise every sample stands for itself."""
        return self.kind != "masked" or self.memory > 0

    @property
    def segmented(self) -> bool:
        """Whether only an encoder of `check_segments` reads it: with a memory, or in a drawn order. What is
        before a token, or all around it, any encoder looks at."""
        return self.kind == "permutation" or self.memory > 0

    def streams(self, lanes: int) -> StreamSettings:
        """The same for so many sequences a batch.

        Raises:
            SettingsError: it does not fit together.
        """
        order, length = self.permutation, self.max_length
        return StreamSettings(
            self.kind,
            length,
            lanes,
            masks=self.masks,
            reuse=order.reuse,
            block=order.block or 0,
            predictions=0 if self.kind != "permutation" else order.predictions or max(1, length // 6),
            spans=SpanSettings(order.ngram, order.alpha, order.beta, self.reference_defects),
            both=order.both_directions,
        )

    @property
    def masks(self) -> MaskSettings:
        """How tokens are hidden."""
        return MaskSettings(**self.masking.model_dump(), reference_defects=self.reference_defects)


class Stage(Settings):
    """A part of a run, and what differs in it from the run's own settings; None: as they are."""

    begin: float = Field(ge=0, lt=1, description="share of the run at which it begins; of the first 0")
    max_length: int | None = Field(None, ge=SHORTEST, description="tokens of a sample, at most the run's")
    batch_size: int | None = Field(
        None, ge=1, description="default: as many tokens as training.batch_size of objective.max_length"
    )
    pairs: Literal["sop", "nsp", "none"] | None = Field(
        None,
        description=f"default: the run's, but none where max_length is shortened below {SHORTEST_PAIRS}",
    )
    repeats: float | None = Field(None, ge=0, le=1, description="default: the run's, and 0 without pairs")
    mask_probability: float | None = Field(None, gt=0, lt=1, description="objective.masking.probability here")
    masked: float | None = Field(None, ge=0, le=1, description="objective.masking.masked here")
    random: float | None = Field(None, ge=0, le=1, description="objective.masking.random here")
    ngram: int | None = Field(None, ge=1, le=10, description="objective.masking.ngram here")
    depth: int | None = Field(None, ge=1, le=MAX_DEPTH, description="compute only the first depths")
    causal: bool = Field(
        False,
        description="predict the next token, seeing none after; mask_probability is then the share of the "
        "tokens predicted, by default a third",
    )

    @model_serializer(mode="wrap")
    def _differences(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Only what differs, so that a settings file stays readable."""
        return {
            name: value for name, value in handler(self).items() if value is not None and value is not False
        }

    def shortens(self, objective: ObjectiveChoice) -> bool:
        """Whether its samples are too short for pairs, and those of the run are longer."""
        return self.max_length is not None and self.max_length < min(SHORTEST_PAIRS, objective.max_length)

    def applied(self, objective: ObjectiveChoice) -> ObjectiveChoice:
        """The objective in this stage."""
        short = "none" if self.shortens(objective) else objective.pairs
        given = {"probability": self.mask_probability, "ngram": self.ngram}
        given |= {"masked": self.masked, "random": self.random}
        masking = objective.masking.model_copy(update={k: v for k, v in given.items() if v is not None})
        pairs = self.pairs or short
        usual = 0.0 if pairs == "none" else objective.repeats
        changed = {
            "max_length": self.max_length or objective.max_length,
            "pairs": pairs,
            "repeats": usual if self.repeats is None else self.repeats,
        }
        return objective.model_copy(update={**changed, "masking": masking})


class TrainingChoice(ComputeSettings):
    """How it is optimised and for how long."""

    batch_size: int = Field(256, ge=1, description="sequences per update, over all processes")
    micro_batch_tokens: int = Field(
        16384, ge=64, description="most tokens in one forward pass of one process"
    )
    steps: int | None = Field(None, ge=1, description="length of the run in updates")
    minutes: float | None = Field(
        None, gt=0, description="wall-clock budget instead of steps, counted over restarts"
    )
    optimizer: OptimizerKind = Field(
        "lamb", description="lamb, adamw, or muon: Muon for the matrices of the blocks and AdamW for the rest"
    )
    learning_rate: float | None = Field(
        None,
        gt=0,
        description="the peak; default: 0.00176 at 4096 (lamb), 1e-4 at 256 (adamw), scaled by the square "
        "root; 0.02 at any batch (muon)",
    )
    adamw_rate: float | None = Field(
        None,
        gt=0,
        description="muon: learning rate of all but the matrices of the blocks, over that of these; "
        f"default {ADAMW_SHARE:g}",
    )
    schedule: Literal["linear", "wsd", "constant"] = Field(
        "linear",
        description="of the learning rate after the warm-up: linear falls to 0, wsd stays and falls over the "
        "share decay, constant stays",
    )
    warmup: float = Field(0.025, ge=0, lt=1, description="share of the run; the paper's 3125 of 125000")
    decay: float = Field(0.2, gt=0, le=1, description="share of the run over which wsd decays")
    weight_decay: float = Field(0.01, ge=0, description="of matrices; biases and norms have none")
    clip: float | None = Field(1.0, gt=0, description="most length of the gradient; none: any")
    average: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="judge and save a moving average of the weights; its decay a step, often 0.99 to 0.999",
    )
    workers: int = Field(1, ge=0, description="processes that draw masks ahead of time")

    @model_validator(mode="after")
    def _one_length(self) -> TrainingChoice:
        if (self.steps is None) == (self.minutes is None):
            raise ValueError(
                "give training.steps or training.minutes, and not both; what a recipe says of one is taken "
                "out by training.steps=null or training.minutes=null"
            )
        return self

    @model_validator(mode="after")
    def _one_rate(self) -> TrainingChoice:
        if self.adamw_rate is not None and self.optimizer != "muon":
            raise ValueError("training.adamw_rate belongs to training.optimizer=muon")
        return self

    @property
    def rate(self) -> float:
        """The peak learning rate: given, or the published one, scaled with the square root of the batch
        where it belongs to a batch."""
        given = self.learning_rate
        return published_rate(self.optimizer, self.batch_size) if given is None else given


class Watching(Settings):
    """How often to look and to save; `every` counts steps."""

    log_every: int = Field(10, ge=1, description="steps from line to line of metrics.jsonl")
    evaluate_every: int = Field(
        500, ge=1, description="steps from one judgement by held-out text to the next"
    )
    evaluate_sequences: int = Field(512, ge=1, description="held-out sequences judged each time")
    checkpoint_every: int = Field(500, ge=1, description="steps from checkpoint to checkpoint")
    keep: int = Field(3, ge=2, description="checkpoints kept")
    tensorboard: bool = Field(True, description="write tensorboard/ too, where it is installed")
    stop_on_alarm: bool = Field(
        False, description="end the run at an alarm; the same command goes on past it"
    )


class PretrainingSettings(RunSettings):
    """One pretraining run."""

    example = "name=mine corpus=corpora/mine model.preset=albertine-mini training.minutes=5"

    corpus: Path = Field(description="folder that `albertine prepare` made")
    model: ModelChoice
    objective: ObjectiveChoice = ObjectiveChoice()
    training: TrainingChoice
    watching: Watching = Watching()
    stages: tuple[Stage, ...] = Field(
        (), description="parts of the run with other lengths, masks, batches or depths, in their order"
    )

    @model_validator(mode="after")
    def _streams_fit(self) -> PretrainingSettings:
        if self.objective.streamed:
            if self.stages:
                raise ValueError(
                    f"stages are of samples that stand for themselves, and with objective.kind "
                    f"{self.objective.kind} and memory {self.objective.memory} they go on from step to step; "
                    "leave stages out"
                )
            self.objective.streams(self.training.batch_size)
        return self

    @model_validator(mode="after")
    def _stages_fit(self) -> PretrainingSettings:
        begins = [stage.begin for stage in self.stages]
        if begins and begins[0] != 0:
            raise ValueError(f"stages: the first begins at {begins[0]:g}; it must begin at 0")
        for number, (one, two) in enumerate(pairwise(begins), 2):
            if two <= one:
                raise ValueError(
                    f"stages: number {number} begins at {two:g}, and the one before it at {one:g}; "
                    "write them in the order of the run"
                )
        for number, stage in enumerate(self.stages, 1):
            if trouble := _trouble(stage, self.objective):
                raise ValueError(f"stages: number {number} {trouble}")
        return self


def _trouble(stage: Stage, objective: ObjectiveChoice) -> str | None:
    """What is wrong with a stage of a run with this objective."""
    here = stage.applied(objective)
    if here.max_length > objective.max_length:
        return (
            f"has max_length {here.max_length}, more than objective.max_length {objective.max_length}; "
            "raise that, and shorten the other stages"
        )
    if (masked := here.masking.masked) + (random := here.masking.random) > 1 + 1e-9:
        return f"has masked {masked:g} and random {random:g}, which are more than all tokens"
    if here.pairs not in ("none", objective.pairs):
        return (
            f"has pairs {here.pairs}, and objective.pairs is {objective.pairs}, which says what head there "
            "is; set that, and pairs: none in the stages without"
        )
    if here.repeats and here.pairs == "none":
        return (
            "has repeats and no pairs; an excerpt is a second segment, so set its pairs or leave repeats out"
        )
    if stage.causal and (stage.masked, stage.random, stage.ngram) != (None, None, None):
        return "is causal and masks nothing; leave out its masked, random and ngram"
    if objective.distillation is not None and (stage.causal or stage.depth is not None):
        return "is causal or computes some depths only, which no teacher can be asked for; leave that out"
    if stage.causal and here.pairs != "none":
        return f"is causal and has pairs {here.pairs}, whose [CLS] would see nothing; add pairs: none to it"
    return None
