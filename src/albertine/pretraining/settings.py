"""The settings of a pretraining run, with the defaults of the ALBERT paper where it has one."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import Field, SerializerFunctionWrapHandler, field_validator, model_serializer, model_validator

from albertine.core.randomness import generator
from albertine.core.settings import ComputeSettings, RunSettings, Settings, resolve
from albertine.errors import SettingsError
from albertine.model.config import (
    MAX_DEPTH,
    Activation,
    FeedForward,
    HaltingLimit,
    HaltingRule,
    Initialization,
    Mapping,
    Norm,
    Output,
    Positions,
    PositionSignal,
    RelativeBiasesOf,
    Solver,
    StepSignal,
    Summary,
)
from albertine.model.presets import preset
from albertine.model.sharing import SharingPlan
from albertine.objectives.distillation import DistillationWeights
from albertine.objectives.masking import CAUSAL_PREDICTIONS, MaskSettings
from albertine.objectives.prediction_spans import SpanSettings
from albertine.objectives.stream_settings import StreamSettings
from albertine.training.optimizers import ADAMW_SHARE, OptimizerKind
from albertine.training.schedules import published_rate

SHORTEST = 8
"""The least `max_length`."""
SHORTEST_PAIRS = 32
"""Most chunks of 29 tokens (32 without the special ones) contain two sentences; shorter ones contain one,
which has no order, or fragments of two."""


Sharing = Literal["preset", "all", "attention", "ffn", "none"]


class LoopedSharing(Settings):
    """A core of blocks that is repeated: prelude + core × loops + coda layers."""

    prelude: int = Field(0, ge=0, le=MAX_DEPTH, description="layers of their own before the core")
    core: int = Field(1, ge=1, le=MAX_DEPTH, description="blocks of the core")
    loops: int = Field(ge=1, le=MAX_DEPTH, description="how often the core is repeated")
    coda: int = Field(0, ge=0, le=MAX_DEPTH, description="layers of their own after the core")

    @property
    def plan(self) -> SharingPlan:
        return SharingPlan.looped(self.prelude, self.core, self.loops, self.coda)


class EncoderChanges(Settings):
    """Changed fields of a preset's encoder, named as in `EncoderConfig`; None: unchanged.

    The vocabulary is that of the corpus; the sharing plan is `model.sharing`, the output matrix
    `model.output`, and the residual factor `model.residuals`.
    """

    hidden_size: int | None = Field(None, description="width of the hidden states")
    num_hidden_layers: int | None = Field(
        None, ge=1, le=MAX_DEPTH, description="number of layers, shared ones counted each time"
    )
    num_attention_heads: int | None = Field(None, description="heads, which divide hidden_size")
    intermediate_size: int | None = Field(None, description="width inside the feed-forward part")
    embedding_size: int | None = Field(
        None, description="default: the preset's, or hidden_size where the preset has the two equal"
    )
    hidden_act: Activation | None = Field(
        None, description="gelu_new (tanh), gelu (erf), relu or relu2 (its square)"
    )
    hidden_dropout_prob: float | None = Field(None, description="dropout of hidden states")
    attention_probs_dropout_prob: float | None = Field(None, description="dropout of attention weights")
    classifier_dropout_prob: float | None = Field(None, description="dropout before a classifier")
    max_position_embeddings: int | None = Field(None, description="most tokens of a text")
    type_vocab_size: int | None = Field(None, description="segment types; 0: no segment embeddings")
    initializer_range: float | None = Field(None, description="standard deviation of new weights")
    layer_norm_eps: float | None = Field(None, description="epsilon of LayerNorms")
    pad_token_id: int | None = Field(None, description="padding token")
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
        None, description="rotary: the smallest angle per position is 1 / rotary_base"
    )
    norm: Norm | None = Field(None, description="post: behind each block, as in ALBERT; pre: before it")
    feed_forward: FeedForward | None = Field(None, description="plain, or gated as in ModernBERT")
    biases: bool | None = Field(None, description="false: none in linear layers and LayerNorms")
    qk_norm: bool | None = Field(None, description="true: normalise queries and keys")
    clamp_positions: int | None = Field(
        None, description="relative positions: larger distances count as this one; 0: no limit"
    )
    relative_biases: RelativeBiasesOf | None = Field(
        None, description="relative positions: block, each has its own; tied: all have those of the first"
    )
    embedding_norm: bool | None = Field(None, description="false: embeddings are not normalised, as in XLNet")
    summary: Summary | None = Field(
        None, description="the summary token of a sequence; default: where the corpus' tokenizer puts [CLS]"
    )
    position_signal: PositionSignal | None = Field(
        None, description="position embedding added before every step: sinusoid, learned or none"
    )
    step_signal: StepSignal | None = Field(
        None, description="embedding of the step added before it, likewise"
    )
    halting: HaltingRule | None = Field(
        None,
        description="basic or accumulated: adaptive number of steps per token, num_hidden_layers at most; "
        "needs one block for all layers",
    )
    halting_epsilon: float | None = Field(
        None, description="a token halts when the sum of its probabilities exceeds 1 - halting_epsilon"
    )
    halting_limit: HaltingLimit | None = Field(
        None,
        description="weight of the last step for a token that has not halted: its remainder, or as in the "
        "reference its probability alone",
    )
    solver: Solver | None = Field(
        None,
        description="anderson or broyden: run the shared block to its fixed point, in at most "
        "num_hidden_layers iterations; needs input_injection",
    )
    tolerance: float | None = Field(None, description="residual at which a fixed point counts as found")
    input_injection: bool | None = Field(
        None, description="add a linear map of the embeddings to queries, keys and values of every layer"
    )
    head_gate: bool | None = Field(
        None, description="true: multiply each head's output by a sigmoid of a linear map of the input"
    )

    @model_serializer(mode="wrap")
    def _changes(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Only changed fields, so that a settings file stays readable."""
        return {name: value for name, value in handler(self).items() if value is not None}


WIDTHS = ("hidden_size", "num_attention_heads", "intermediate_size", "embedding_size")


class Student(Settings):
    """Reduced sizes of a model; None: unchanged."""

    depth: int | None = Field(
        None,
        ge=1,
        le=MAX_DEPTH,
        description="layers of the student, initialised from some of the model's",
    )
    depths: tuple[int, ...] | None = Field(
        None, description="those layers of the model, from 0; default: the first of as many equal parts"
    )
    sharing: Literal["all", "attention", "ffn", "none"] | None = Field(
        None, description="what its layers share; a block of several layers is initialised with their mean"
    )
    hidden_size: int | None = Field(None, ge=1, description="width of the hidden states")
    num_attention_heads: int | None = Field(None, ge=1, description="heads, which divide hidden_size")
    intermediate_size: int | None = Field(None, ge=1, description="width inside the feed-forward part")
    embedding_size: int | None = Field(None, ge=1, description="width of the word embeddings")

    @model_validator(mode="after")
    def _smaller(self) -> Student:
        if self.depths == ():
            raise ValueError("depths is empty; name at least one layer, or leave it out")
        if self.depth is not None and self.depths is not None and len(self.depths) != self.depth:
            raise ValueError(f"depth is {self.depth} and depths names {len(self.depths)}; leave one out")
        if all(value is None for value in self.__dict__.values()):
            raise ValueError("model.student changes nothing; set depth, sharing or a width, or leave it out")
        return self

    @property
    def widths(self) -> dict[str, int]:
        """The changed widths, named as in `EncoderConfig`."""
        return {name: value for name in WIDTHS if (value := getattr(self, name)) is not None}


class Distillation(Settings):
    """Teacher and weights of a distillation."""

    teacher: Path = Field(
        description="model folder of any layout, run folder, released model or owner/name on the hub"
    )
    temperature: float = Field(2.0, gt=0, description="of the soft targets")
    soft: float = Field(
        1.0,
        ge=0,
        description="weight of the teacher's probabilities at masked positions; 0 for a teacher without a "
        "masked-LM head, such as XLNet",
    )
    hidden: float = Field(1.0, ge=0, description="weight of its hidden states, layers mapped evenly")
    attention: float = Field(
        0.1,
        ge=0,
        description="weight of its attention maps, or with another number of heads, of relations; "
        "this loss, in nats per row, is ten times as large as the others",
    )

    @model_validator(mode="after")
    def _something_is_learned(self) -> Distillation:
        if not (self.soft or self.hidden or self.attention):
            raise ValueError("soft, hidden and attention are all 0, so nothing is learned from the teacher")
        return self

    @property
    def loss_weights(self) -> DistillationWeights:
        return DistillationWeights(self.soft, self.hidden, self.attention, self.temperature)


def _is(default: str) -> Callable[[object], bool]:
    """For `exclude_if`: as if the setting were not there, so that earlier runs keep their digests."""
    return partial(operator.eq, default)


OF_PRESETS = (
    *("change", "sharing", "own", "low_rank", "embeddings", "output_bias"),
    *("output", "residuals", "residual_init"),
)
"""Settings of a model that are for new weights alone."""


class ModelChoice(Settings):
    """The encoder: a preset, perhaps changed, or a model to start from."""

    preset: str | None = Field(None, description="name of a preset; `albertine info` lists them")
    start_from: Path | None = Field(
        None,
        description="model or run folder, released model or owner/name on the hub, to start from",
    )
    student: Student | None = Field(
        None, description="with start_from: sizes of a smaller model, such as depth: 2"
    )
    sharing: Sharing | int | LoopedSharing = Field(
        "preset",
        description="what all layers share; a number of groups, each with a block of its own; or prelude, "
        "core, loops and coda of a core of blocks that is repeated",
    )
    own: tuple[Literal["norms", "residuals", "injection"], ...] = Field(
        (), description="parameters of every layer of its own, beside shared blocks"
    )
    low_rank: int = Field(0, ge=0, description="rank of every layer's additions to shared blocks")
    embeddings: Literal["reference", "wide"] = Field(
        "reference",
        description="initial embeddings: Google's, or with a larger deviation and sinusoids for positions, "
        "which ends the plateau of a small model sooner",
    )
    output_bias: Literal["zeros", "unigram"] = Field(
        "zeros",
        description="initial masked-LM bias: Google's zeros, or log frequencies of the corpus, which saves "
        "the steps that learn them",
    )
    output: Output = Field(
        "tied",
        exclude_if=_is("tied"),
        description="output matrix of the masked-LM head: tied, the word embeddings; own, another matrix of "
        "their size, with the initial deviation of `reference` whatever embeddings is",
    )
    residuals: Literal["plain", "inverse_sqrt", "inverse"] = Field(
        "plain",
        exclude_if=_is("plain"),
        description="fixed factor of each sublayer's output: 1; or with n layers 1/sqrt(n), or 1/n; "
        "`residuals` among model.own are learned",
    )
    residual_init: Literal["reference", "zeros"] = Field(
        "reference",
        exclude_if=_is("reference"),
        description="initial output projections of attention and feed-forward: as all matrices, or zeros, "
        "so that the layers of a pre-norm encoder begin as the identity",
    )
    change: EncoderChanges = Field(
        EncoderChanges(), description="changed fields of the encoder, for example hidden_size: 256"
    )

    @field_validator("sharing", mode="before")
    @classmethod
    def _check_sharing(cls, given: object) -> object:
        # Checked here, because pydantic reports errors of a union as of two fields.
        if isinstance(given, str) and given.isdecimal():
            given = int(given)  # from a command line
        if isinstance(given, str) and given in get_args(Sharing):
            return given
        if (type(given) is int and given >= 1) or isinstance(given, LoopedSharing):
            return given
        if isinstance(given, dict):
            try:
                return resolve(LoopedSharing, given)
            except SettingsError as error:
                raise ValueError(error.what) from error
        raise ValueError(
            f"should be {', '.join(get_args(Sharing))}, a number of groups, or prelude, core, loops and coda"
        )

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
        given = {name for name in OF_PRESETS if getattr(self, name) != type(self).model_fields[name].default}
        if self.start_from is not None and given:
            *names, last = OF_PRESETS
            raise ValueError(
                f"model.{', '.join(names)} and {last} belong to a preset; weights bring their own"
            )
        if self.start_from is None and self.student is not None:
            raise ValueError(
                "model.student reduces model.start_from, which is not given; a preset has model.change"
            )
        return self


class Masking(Settings):
    """Masking of the masked LM, section 4.1 of the ALBERT paper."""

    probability: float = Field(0.15, gt=0, lt=1, description="share of the tokens to predict")
    ngram: int = Field(
        3, ge=1, le=10, description="longest run of words masked together; p(n) is proportional to 1/n"
    )
    favor_shorter: bool = Field(
        True, description="ngram: short runs are likelier; false: the same weights in reverse"
    )
    whole_word: bool = Field(
        True, description="mask whole words, not single tokens; words are those of `prepare --words`"
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

    @property
    def over_a_recipe(self) -> str:
        """How to undo the settings of a recipe that differ from the defaults."""
        usual = ((name, field.default) for name, field in type(self).model_fields.items())
        back = [f"objective.masking.{name}={value}" for name, value in usual if getattr(self, name) != value]
        return f"over a recipe write {', '.join(back)}"


class Permutation(Settings):
    """Permutation language modelling, as in XLNet (1906.08237, sections 2.2 to 2.5)."""

    reuse: int = Field(
        0,
        ge=0,
        description="tokens of a segment reused from the previous step, followed by two passages, [SEP] "
        "and [CLS]; XLNet: half of max_length. 0: segments are plain text",
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
    both_directions: bool = Field(False, description="half of a batch has the text in reverse order")


class Elastic(Settings):
    """Training at a drawn number of loops of a repeated core, for any depth in use."""

    least: int = Field(1, ge=1, description="fewest loops of a step")
    most: int = Field(ge=1, description="most loops of a step: those of the plan")
    teacher: bool = Field(
        False,
        description="true: every step is trained at `most` loops, and a drawn smaller number learns its "
        "predictions",
    )

    @model_validator(mode="after")
    def _in_order(self) -> Elastic:
        if self.least + self.teacher > self.most:
            more = "teacher needs fewer loops to teach, and " if self.teacher else ""
            raise ValueError(f"{more}least is {self.least} and most {self.most}; lower least, or raise most")
        return self

    def loops(self, seed: int, epoch: int, offset: int) -> int:
        """The number of loops of the batch that ends at a position of the run: uniform from `least` to
        `most`, or with a teacher to one fewer."""
        count = self.most - self.least + (not self.teacher)
        return self.least + int(generator(seed, "elastic", epoch, offset).integers(count))


class ObjectiveChoice(Settings):
    """What is predicted."""

    kind: Literal["masked", "causal", "permutation"] = Field(
        "masked",
        description="masked: masked tokens from their context; causal: each token from those before it; "
        "permutation: tokens in a random order, as XLNet",
    )
    memory: int = Field(
        0,
        ge=0,
        description="tokens of each sequence that its next segment attends to; a masked objective with 0 has "
        "single samples, as ALBERT, otherwise text is streamed from step to step",
    )
    permutation: Permutation = Permutation()
    pairs: Literal["sop", "nsp", "none"] = Field(
        "sop",
        description="objective on two segments: sop, which comes first; nsp, whether they are consecutive; "
        "none: samples are one passage",
    )
    max_length: int = Field(
        128,
        ge=SHORTEST,
        description="tokens of a sample, special tokens included; default: 128, or the positions of the "
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
        description="the reference's defects: pairs across documents, n-grams across [SEP], spans of tokens "
        "in a permutation",
    )
    repeats: float = Field(
        0.0,
        ge=0,
        le=1,
        description="share of samples that are a passage and an excerpt of it, to learn copying; "
        "they have no sentence order",
    )
    masking: Masking = Masking()
    causal_share: float = Field(
        0.0,
        ge=0,
        le=1,
        exclude_if=operator.not_,  # as if it were not there: runs of before keep their fingerprints
        description="share of the samples that are causal: not masked, and tokens are predicted from those "
        "before them; its loss has this weight, that of masked tokens the rest. Needs pairs: none",
    )
    causal_predictions: float = Field(
        CAUSAL_PREDICTIONS,
        gt=0,
        le=1,
        exclude_if=lambda share: bool(share == CAUSAL_PREDICTIONS),
        description="of the tokens of a causal sample, the share that is predicted",
    )
    ponder: float | None = Field(
        None,
        ge=0,
        description="with model.change.halting: weight of the ponder cost (steps per token); default 0.01",
    )
    jacobian: float | None = Field(
        None,
        gt=0,
        description="with model.change.solver: weight of the norm of a step's Jacobian, a penalty that makes "
        "its fixed point easier to find; the paper's are about 2",
    )
    jacobian_frequency: float = Field(0.35, gt=0, le=1, description="share of the passes that compute it")
    distillation: Distillation | None = Field(
        None, description="learn from a teacher, too: distillation.teacher and the weights of its losses"
    )
    elastic: Elastic | None = Field(
        None,
        exclude_if=operator.not_,  # as if it were not there: runs of before keep their fingerprints
        description="draw the number of loops of every step: elastic.least to elastic.most; needs a repeated "
        "core of blocks (model.sharing)",
    )

    @model_validator(mode="after")
    def _excerpts_are_segments(self) -> ObjectiveChoice:
        if self.repeats and self.pairs == "none":
            raise ValueError(
                "an excerpt is a second segment; set objective.pairs to sop or nsp, or repeats to 0"
            )
        return self

    @model_validator(mode="after")
    def _distillation_needs_samples(self) -> ObjectiveChoice:
        if self.distillation is not None and self.streamed:
            raise ValueError(
                "distillation needs masked tokens of single samples; set objective.kind: masked, memory: 0, "
                "or leave objective.distillation out"
            )
        return self

    @model_validator(mode="after")
    def _elastic_needs_samples(self) -> ObjectiveChoice:
        if self.elastic is not None and (self.streamed or self.distillation is not None):
            what = "streamed text" if self.streamed else "distillation"
            raise ValueError(f"objective.elastic is not supported with {what}; leave one of the two out")
        return self

    @model_validator(mode="after")
    def _streams_have_no_pairs(self) -> ObjectiveChoice:
        if self.streamed and self.pairs != "none":
            what = "objective.memory is" if self.kind == "masked" else f"objective.kind {self.kind} is"
            raise ValueError(
                f"{what} for streamed text, and pairs {self.pairs} are single samples; "
                "set objective.pairs: none"
            )
        if self.streamed and self.causal_share:
            what = "has a memory" if self.kind == "masked" else f"is {self.kind}"
            raise ValueError(
                f"objective.causal_share is for single samples, and this objective {what} and streams text; "
                "leave it out"
            )
        if self.kind != "permutation" and self.permutation != Permutation():
            raise ValueError(
                f"objective.permutation belongs to objective.kind permutation, and it is {self.kind}"
            )
        if self.kind != "masked" and self.masking != Masking():
            instead = ", or set objective.permutation" if self.kind == "permutation" else ""
            raise ValueError(
                f"objective.masking belongs to objective.kind masked, and it is {self.kind}; leave it "
                f"out{instead}; {self.masking.over_a_recipe}"
            )
        return self

    @property
    def streamed(self) -> bool:
        """Whether text is streamed from step to step; otherwise samples are independent."""
        return self.kind != "masked" or self.memory > 0

    @property
    def segmented(self) -> bool:
        """Whether it needs a segment memory or permuted attention, which only encoders of `check_segments`
        have."""
        return self.kind == "permutation" or self.memory > 0

    def streams(self, lanes: int) -> StreamSettings:
        """The settings of `lanes` streams.

        Raises:
            SettingsError: values do not fit together.
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
        """The settings of the masking."""
        return MaskSettings(**self.masking.model_dump(), reference_defects=self.reference_defects)


class Stage(Settings):
    """A part of a run with other settings; None: those of the run."""

    begin: float = Field(ge=0, lt=1, description="share of the run at which it begins; 0 for the first")
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
    depth: int | None = Field(None, ge=1, le=MAX_DEPTH, description="compute only the first layers")
    causal: bool = Field(
        False,
        description="predict next tokens alone, as causal_share: 1; mask_probability is then "
        "causal_predictions",
    )
    causal_share: float | None = Field(None, ge=0, le=1, description="objective.causal_share here")
    causal_predictions: float | None = Field(
        None, gt=0, le=1, description="objective.causal_predictions here"
    )

    @model_serializer(mode="wrap")
    def _differences(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Only changed fields, so that a settings file stays readable."""
        return {
            name: value for name, value in handler(self).items() if value is not None and value is not False
        }

    def shortens(self, objective: ObjectiveChoice) -> bool:
        """Whether its samples are too short for pairs, and shorter than those of the run."""
        return self.max_length is not None and self.max_length < min(SHORTEST_PAIRS, objective.max_length)

    def applied(self, objective: ObjectiveChoice) -> ObjectiveChoice:
        """The objective in this stage."""
        short = "none" if self.shortens(objective) else objective.pairs
        given = {"probability": self.mask_probability, "ngram": self.ngram}
        given |= {"masked": self.masked, "random": self.random}
        masking = objective.masking.model_copy(update={k: v for k, v in given.items() if v is not None})
        pairs = self.pairs or short
        usual = 0.0 if pairs == "none" else objective.repeats
        share = 1.0 if self.causal else self.causal_share
        predictions = (self.mask_probability if self.causal else None) or self.causal_predictions
        changed = {
            "max_length": self.max_length or objective.max_length,
            "pairs": pairs,
            "repeats": usual if self.repeats is None else self.repeats,
            "causal_share": objective.causal_share if share is None else share,
            "causal_predictions": predictions or objective.causal_predictions,
        }
        return objective.model_copy(update={**changed, "masking": masking})


class TrainingChoice(ComputeSettings):
    """Optimisation and length of the run."""

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
        description="learning rate after warm-up: linear decays to 0, wsd is constant and decays over the "
        "share decay, constant",
    )
    warmup: float = Field(0.025, ge=0, lt=1, description="share of the run; the paper's 3125 of 125000")
    decay: float = Field(0.2, gt=0, le=1, description="share of the run over which wsd decays")
    weight_decay: float = Field(0.01, ge=0, description="of matrices; biases and norms have none")
    clip: float | None = Field(1.0, gt=0, description="largest gradient norm; none: no clipping")
    average: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="evaluate and save a moving average of the weights; decay per step, often 0.99 to 0.999",
    )
    workers: int = Field(1, ge=0, description="processes that draw masks ahead of time")

    @model_validator(mode="after")
    def _one_length(self) -> TrainingChoice:
        if (self.steps is None) == (self.minutes is None):
            raise ValueError(
                "give training.steps or training.minutes, and not both; that of a recipe is removed by "
                "training.steps=null or training.minutes=null"
            )
        return self

    @model_validator(mode="after")
    def _one_rate(self) -> TrainingChoice:
        if self.adamw_rate is not None and self.optimizer != "muon":
            raise ValueError("training.adamw_rate belongs to training.optimizer=muon")
        return self

    @property
    def rate(self) -> float:
        """The peak learning rate: `learning_rate`, or the published one for optimizer and batch size."""
        given = self.learning_rate
        return published_rate(self.optimizer, self.batch_size) if given is None else given


class Watching(Settings):
    """Intervals, in steps, of logging, evaluations and checkpoints."""

    log_every: int = Field(10, ge=1, description="steps between lines of metrics.jsonl")
    evaluate_every: int = Field(500, ge=1, description="steps between evaluations on held-out text")
    evaluate_sequences: int = Field(512, ge=1, description="held-out sequences of an evaluation")
    checkpoint_every: int = Field(500, ge=1, description="steps between checkpoints")
    keep: int = Field(3, ge=2, description="checkpoints kept")
    tensorboard: bool = Field(True, description="write tensorboard/ too, where it is installed")
    stop_on_alarm: bool = Field(False, description="end the run at an alarm; the same command resumes it")


class PretrainingSettings(RunSettings):
    """One pretraining run."""

    example = "name=mine corpus=corpora/mine model.preset=albertine-mini training.minutes=5"

    corpus: Path = Field(description="folder made by `albertine prepare`")
    model: ModelChoice
    objective: ObjectiveChoice = ObjectiveChoice()
    training: TrainingChoice
    watching: Watching = Watching()
    stages: tuple[Stage, ...] = Field(
        (), description="parts of the run with other lengths, masks, batches or layers, in their order"
    )

    @model_validator(mode="after")
    def _streams_fit(self) -> PretrainingSettings:
        if self.objective.streamed:
            if self.stages:
                raise ValueError(
                    f"stages are for single samples, and objective.kind {self.objective.kind} with memory "
                    f"{self.objective.memory} streams text; leave stages out"
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
            if problem := _stage_problem(stage, self.objective):
                raise ValueError(f"stages: number {number} {problem}")
        return self

    @model_validator(mode="after")
    def _causal_samples_fit(self) -> PretrainingSettings:
        objective = self.objective
        if not self.stages and (problem := _causal_problem(objective)):
            raise ValueError(f"objective {problem}")
        everywhere = objective.causal_share == 1 and all(
            stage.applied(objective).causal_share == 1 for stage in self.stages
        )
        if everywhere and objective.masking != Masking():
            raise ValueError(
                "objective.masking belongs to masked samples, and objective.causal_share is 1; leave one of "
                f"the two out, {objective.masking.over_a_recipe}"
            )
        return self


def _stage_problem(stage: Stage, objective: ObjectiveChoice) -> str | None:
    """The error of a stage in a run with this objective, or None."""
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
            f"has pairs {here.pairs}, and objective.pairs is {objective.pairs}, which determines the "
            "head; set that, and pairs: none in the stages without"
        )
    if here.repeats and here.pairs == "none":
        return (
            "has repeats and no pairs; an excerpt is a second segment, so set its pairs or leave repeats out"
        )
    if stage.causal and stage.causal_share is not None:
        return "has causal_share and is causal, which is causal_share: 1; leave one of the two out"
    if stage.causal and None not in (stage.mask_probability, stage.causal_predictions):
        return (
            "is causal and has mask_probability and causal_predictions, which mean the same there; leave one "
            "of the two out"
        )
    if stage.causal and (stage.masked, stage.random, stage.ngram) != (None, None, None):
        return "is causal and masks nothing; leave out its masked, random and ngram"
    masks = (stage.mask_probability, stage.masked, stage.random, stage.ngram)
    if stage.causal_share == 1 and masks != (None, None, None, None):
        return (
            "has causal_share 1 and masks nothing; leave out its mask_probability, masked, random and ngram"
        )
    if stage.causal_predictions is not None and not here.causal_share:
        return "has causal_predictions and no causal samples; leave it out, or set its causal_share"
    if objective.distillation is not None and (stage.causal or stage.depth is not None):
        return "is causal or computes some layers only, which distillation does not support; leave that out"
    if objective.elastic is not None and stage.depth is not None:
        return "has a depth, and objective.elastic draws the number of layers; leave one of the two out"
    if stage.causal and here.pairs != "none":
        return f"is causal and has pairs {here.pairs}, whose [CLS] would attend to itself; add pairs: none"
    return _causal_problem(here)


def _causal_problem(here: ObjectiveChoice) -> str | None:
    """The error of causal samples with this objective, or None."""
    share = here.causal_share
    if share and here.pairs != "none":
        return (
            f"has causal_share {share:g} and pairs {here.pairs}, whose [CLS] would attend to itself in "
            "causal samples; set pairs: none"
        )
    if share and here.distillation is not None:
        return f"has causal_share {share:g}, which distillation does not support; leave one of the two out"
    return None
