"""Configuration of an encoder: its sizes, sharing plan and semantics, and the checks that they fit
together."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from math import log10
from sys import float_info
from typing import Any, Literal, get_args, get_origin, get_type_hints

from albertine.errors import SettingsError
from albertine.model.sharing import SharingPlan

Activation = Literal["gelu_new", "gelu", "relu", "relu2"]
Mapping = Literal["if_needed", "always", "words"]
MappingInput = Literal["words", "sum", "normed"]
Initialization = Literal["truncated_normal", "normal"]
Positions = Literal["learned", "rotary", "relative", "none"]
RelativeBiasesOf = Literal["block", "tied"]
PositionSignal = Literal["none", "sinusoid", "learned"]
StepSignal = Literal["none", "sinusoid", "learned"]
HaltingRule = Literal["none", "basic", "accumulated"]
HaltingLimit = Literal["remainder", "reference"]
Norm = Literal["post", "pre"]
FeedForward = Literal["plain", "gated"]
Summary = Literal["first", "last"]
Solver = Literal["none", "anderson", "broyden"]
Output = Literal["tied", "own"]
Architecture = Literal["bert", "albert", "brightmart", "roformer", "modernbert", "xlnet"]
Pooling = Literal["mean", "cls", "depths"]
"""Text vector: the mean over all tokens of the last layer, special ones included; its [CLS]; or the mean over
all tokens of all layers, the embeddings included."""
HeadInput = Literal["mean", "cls", "depths", "compared", "whitened"]
"""Input of a head: a `Pooling`; of a classifier of pairs also the comparison of both texts (`pair_head.py`);
of text vectors also the whitened mean over all tokens (`task_model.WhitenedEmbedder`)."""
COMPARED = 4
"""Vectors of width H in the input of a pair classifier: differences and products, of two states each."""
SUBJECT_POWER, OBJECT_POWER = 2, 4
"""Powers of the sigmoids of relation pointers (`model.relation_head`)."""

FORMAT = 5
"""Version of `EncoderConfig.to_dict`, raised with every field that an older version would compute wrongly
without. Folders without a number have format 1; 2 has positions, norm, feed_forward, biases, qk_norm, and the
per-layer parameters of the plan; 3 has relative positions, `summary`, signals, halting, and solvers with
input injection; 4 has the embedding_mapping "words"; 5 has the activation "relu2", head_gate,
residual_factor and output."""

_SINCE_2 = {"positions", "rotary_base", "norm", "feed_forward", "biases", "qk_norm"}
_RELATIVE = {"clamp_positions", "relative_biases", "embedding_norm", "summary"}
_LOOP = {"position_signal", "step_signal", "halting", "halting_epsilon", "halting_limit"}
_SINCE_3 = _RELATIVE | _LOOP | {"solver", "tolerance", "input_injection"}
_SINCE_5 = {"head_gate", "residual_factor", "output"}
_LATER = _SINCE_2 | _SINCE_3 | _SINCE_5
QK_SCALE = 0.12

MAX_DEPTH = 4096
MAX_WIDTH = 1 << 20
MAX_ROWS = 1 << 24
# Upper bounds, so that a broken configuration file cannot request terabytes of memory.
_MAXIMA = {
    "vocab_size": MAX_ROWS,
    "max_position_embeddings": MAX_ROWS,
    "type_vocab_size": MAX_ROWS,
    "clamp_positions": MAX_ROWS,
    "embedding_size": MAX_WIDTH,
    "hidden_size": MAX_WIDTH,
    "intermediate_size": MAX_WIDTH,
    "num_attention_heads": MAX_WIDTH,
}
_MAY_BE_0 = ("type_vocab_size", "clamp_positions")
_REMEDIES = {"clamp_positions": "Use the largest distinguished distance, 1 or more, or 0 for no clamp"}

STEP_DEPENDENT = "a step that depends on its number has no fixed point"


@dataclass(frozen=True)
class EncoderConfig:
    """Shape, sharing plan and semantics of an encoder and its pretraining heads.

    Names follow the `AlbertConfig` of google-research/albert (`modeling.py`). The defaults are Google's
    semantics; `huggingface()` gives those of transformers.

    Attributes:
        vocab_size, embedding_size, hidden_size, num_attention_heads, intermediate_size: V, E, H, N, F.
        type_vocab_size: number of segment ids; 0: no segments.
        plan: the blocks of each layer; its depth is the number of layers.
        hidden_act: "gelu_new" is the tanh approximation, which Google's code calls "gelu"; "gelu" is the
            exact erf form; "relu2" is ReLU squared (So et al. 2021, Primer). The masked-LM head has it too.
        classifier_dropout_prob: dropout before a classifier, separate from the hidden dropout.
        embedding_mapping: "if_needed" maps E→H only where E ≠ H, "always" in any case (transformers). "words"
            maps the word embeddings alone, without a bias; positions and segments are H wide and added
            afterwards, and the masked-LM head is H wide (brightmart/albert_zh, `modeling.py`).
        feed_forward_dropout: whether hidden dropout applies to the feed-forward output; transformers' ALBERT
            omits it.
        sentence_dropout: whether the sentence head has `classifier_dropout_prob`, as in transformers' ALBERT.
        initialization: "truncated_normal" (cut at two sigma), or "normal" with the row of the padding token
            zeroed.
        positions: "learned" is a table added to the word embeddings; "rotary" rotates queries and keys by
            angles proportional to their positions (Su et al. 2021); "relative" adds scores of distances (Dai
            et al. 2019) and, in place of a segment table, of being in the same segment (Yang et al. 2019);
            "none" leaves positions to `position_signal`. Without a table `max_position_embeddings` only
            documents the length that the model was trained for.
        rotary_base: the smallest rotation per position is about 1 / rotary_base.
        norm: "post" normalises the sum of a sublayer's input and output, "pre" its input alone, with a final
            LayerNorm (Xiong et al. 2020). With "pre" the embeddings are mapped to H before they are
            normalised, layer 0 does not normalise them again, and the masked-LM head stays H wide:
            ModernBERT's order. Without `embedding_norm` layer 0 does: Transformer-XL's pre_lnorm.
        feed_forward: "gated" multiplies the activated half of the intermediate layer by its other half
            (Shazeer 2020); the layer then has 2F outputs.
        biases: whether linear layers and LayerNorms of encoder and heads have biases; the outputs of the
            masked-LM and the sentence head always have them.
        qk_norm: queries and keys are normalised to a root mean square of 1, and scores are their product
            times `QK_SCALE`.
        clamp_positions: relative positions: maximum distance, to which larger ones are clamped; 0: no clamp.
        relative_biases: relative positions: one set per "block", or those of the first block "tied" for all.
        embedding_norm: whether embeddings are normalised; XLNet's are not.
        summary: the token that represents its sequence in poolers and classifiers: the "first" ([CLS] of BERT
            and ALBERT) or the "last" ([CLS] of XLNet).
        position_signal, step_signal: coordinate embeddings of position and of layer number, added before
            every layer: "sinusoid", a "learned" table, or "none" (Dehghani et al. 2019, 2.1).
        halting: weighting of the steps where every position halts by itself: "basic" (the paper's) or
            "accumulated" (Graves 2016); the depth is then the maximum. "none": all take all steps
            (`model/halting.py`).
        halting_epsilon: a position halts where the sum of its probabilities exceeds 1 - halting_epsilon.
        halting_limit: weight of the last step for a position that has not halted: its "remainder", or its
            probability alone, as in the "reference" code.
        solver: method for the fixed point of the one shared block, "anderson" or "broyden", with the depth as
            the maximum number of evaluations (`model/fixed_point.py`); "none": every layer is computed.
        tolerance: residual at which a fixed point has converged.
        input_injection: whether a linear map of the embeddings is added to queries, keys and values of every
            layer (`model/attention.py`).
        head_gate: whether the attention output of every head is multiplied by sigmoid(W·x + b), one number a
            head and token, with x the input of the sublayer; W (N, H) and b (N,) begin at zero (Qiu et al.
            2025, 2505.06708, head-wise; RecGPT). b is there whatever `biases` says.
        residual_factor: fixed factor of each sublayer's output, x + factor·f(x), above 0 and at most 1;
            beside it `own: residuals` of the plan is learned.
        output: matrix of the language-model heads: "tied" is the word embeddings, "own" a parameter (V, E).
            Such a head reads nothing of the embeddings: it maps H→E itself, whatever `mapping_input` is.

    Raises:
        SettingsError: a size that is not positive, heads that do not divide H, an unknown choice, halting
            where layers have blocks of their own, a solver where there is no fixed point.
    """

    vocab_size: int
    embedding_size: int
    hidden_size: int
    num_attention_heads: int
    intermediate_size: int
    plan: SharingPlan
    hidden_act: Activation = "gelu_new"
    hidden_dropout_prob: float = 0.0
    attention_probs_dropout_prob: float = 0.0
    classifier_dropout_prob: float = 0.1
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    pad_token_id: int = 0
    embedding_mapping: Mapping = "if_needed"
    feed_forward_dropout: bool = True
    sentence_dropout: bool = False
    initialization: Initialization = "truncated_normal"
    positions: Positions = "learned"
    rotary_base: float = 10000.0
    norm: Norm = "post"
    feed_forward: FeedForward = "plain"
    biases: bool = True
    qk_norm: bool = False
    clamp_positions: int = 0
    relative_biases: RelativeBiasesOf = "block"
    embedding_norm: bool = True
    summary: Summary = "first"
    position_signal: PositionSignal = "none"
    step_signal: StepSignal = "none"
    halting: HaltingRule = "none"
    halting_epsilon: float = 0.01
    halting_limit: HaltingLimit = "remainder"
    solver: Solver = "none"
    tolerance: float = 1e-3
    input_injection: bool = False
    head_gate: bool = False
    residual_factor: float = 1.0
    output: Output = "tied"

    def __post_init__(self) -> None:
        _check(self)

    @property
    def num_hidden_layers(self) -> int:
        """Number of layers, shared or not."""
        return self.plan.depth

    @property
    def head_size(self) -> int:
        return self.hidden_size // self.num_attention_heads

    @property
    def attention_biases(self) -> bool:
        """Whether the linear layers of attention have biases; with relative positions they have none."""
        return self.biases and self.positions != "relative"

    @property
    def lead(self) -> int:
        """Number of special tokens before a single text: [CLS] text [SEP], or XLNet's text [SEP] [CLS]."""
        return 1 if self.summary == "first" else 0

    @property
    def has_mapping(self) -> bool:
        """Whether there is a linear map from E to H."""
        return self.embedding_mapping != "if_needed" or self.embedding_size != self.hidden_size

    @property
    def mapping_input(self) -> MappingInput:
        """Input of that map: the word embeddings alone, the sum of all embeddings, or the sum after its
        LayerNorm. Everything before the map is E wide, everything after it H."""
        if self.embedding_mapping == "words":
            return "words"
        return "sum" if self.norm == "pre" else "normed"

    @property
    def max_sequence_length(self) -> int | None:
        """Maximum length of a sequence; None where no table limits it."""
        tables = self.positions == "learned" or self.position_signal != "none"
        return self.max_position_embeddings if tables else None

    @property
    def num_segments(self) -> int | None:
        """Number of valid segment ids; None: segments are ignored. Relative positions compare ids without a
        table, so they accept 256; larger ids are probably not segment ids."""
        if self.type_vocab_size < 2:
            return None
        return 256 if self.positions == "relative" else self.type_vocab_size

    @property
    def halts(self) -> bool:
        """Whether positions halt by themselves (adaptive computation time)."""
        return self.halting != "none"

    @property
    def solves(self) -> bool:
        """Whether the encoder is iterated to a fixed point by a solver."""
        return self.solver != "none"

    @property
    def zero_start(self) -> bool:
        """Whether the layers begin at zeros, because the embeddings are part of the map that is iterated."""
        return self.solves and self.input_injection

    @property
    def early_depth(self) -> int | None:
        """The layer whose states separate texts best before fine-tuning: the first. None, the last, with a
        solver, whose first iterate is only the start of its search."""
        return None if self.solves else 1

    def with_plan(self, plan: SharingPlan) -> EncoderConfig:
        return replace(self, plan=plan)

    def huggingface(self) -> EncoderConfig:
        """The same shape with the semantics of transformers (5.23.0): normal initialisation without
        truncation, a zero padding row and, for ALBERT, the mapping always present, no feed-forward dropout
        and a dropout in the SOP head.

        transformers' BERT, RoFormer and XLNet differ only in initialisation, and ModernBERT, whose
        initialisation is truncated too, in nothing; an unshared, unfactorised encoder counts as BERT.
        """
        if self.architecture == "modernbert":
            return self
        if self.architecture in ("bert", "roformer", "xlnet"):
            return replace(self, initialization="normal")
        return replace(
            self,
            embedding_mapping="words" if self.embedding_mapping == "words" else "always",
            feed_forward_dropout=False,
            sentence_dropout=True,
            initialization="normal",
        )

    @property
    def architecture(self) -> Architecture | None:
        """Name of the block in the literature, whatever is shared; None for other combinations.

        "bert" without sharing and without factorised embeddings, "albert" for the same block otherwise.
        """
        if self.qk_norm or self.plan.low_rank or "injection" in self.plan.own:
            return None
        if self.halts or self.solves or self.input_injection:
            return None
        if self.head_gate or self.residual_factor != 1:
            return None
        if (self.position_signal, self.step_signal) != ("none", "none"):
            return None
        block = self.positions, self.norm, self.feed_forward, self.biases
        if self.embedding_mapping == "words":
            known = block == ("learned", "post", "plain", True) and self.embedding_norm
            return "brightmart" if known and self.summary == "first" and self.type_vocab_size else None
        if not self.embedding_norm:
            return "xlnet" if block == ("relative", "post", "plain", True) else None
        if self.summary == "last":  # which transformers has for XLNet alone
            return None
        if block == ("learned", "post", "plain", True) and self.type_vocab_size:
            plain = self.plan.is_unshared and not self.plan.own and not self.has_mapping
            return "bert" if plain else "albert"
        if block == ("rotary", "post", "plain", True) and self.type_vocab_size:
            return "roformer"
        if block == ("rotary", "pre", "gated", False) and not self.type_vocab_size:
            return "modernbert"
        return None

    @property
    def is_bert(self) -> bool:
        """Whether this is BERT: nothing shared and no factorised embedding."""
        return self.architecture == "bert"

    @property
    def pretraining_heads(self) -> frozenset[str]:
        """Pretraining heads of the papers, as `Model` names them."""
        if self.architecture == "xlnet":
            return frozenset({"lm"})
        return frozenset({"mlm", "nsp" if self.is_bert else "sop"})

    def non_default_dict(self) -> dict[str, Any]:
        """The fields as JSON data, without those of format 2 and later that have their default; equal
        encoders have equal dictionaries, whichever version wrote them."""
        tree = asdict(self)
        plan = {name: x for name, x in tree["plan"].items() if x or name in ("attention", "feed_forward")}
        tree["plan"] = {name: list(x) if isinstance(x, tuple) else x for name, x in plan.items()}
        return {
            name: value
            for name, value in tree.items()
            if name not in _LATER or value != type(self).__dataclass_fields__[name].default
        }

    def to_dict(self) -> dict[str, Any]:
        """JSON data for `from_dict`: the fields, and the oldest format that has them."""
        tree = self.non_default_dict()
        if self.hidden_act == "relu2" or not _SINCE_5.isdisjoint(tree):
            return {"format": 5, **tree}
        if self.embedding_mapping == "words":
            return {"format": 4, **tree}
        if self.positions in ("relative", "none") or not _SINCE_3.isdisjoint(tree):
            return {"format": 3, **tree}
        new = not _SINCE_2.isdisjoint(tree) or self.plan != self.plan.blocks or not self.type_vocab_size
        return {"format": 2 if new else 1, **tree}

    @classmethod
    def from_dict(cls, tree: dict[str, Any]) -> EncoderConfig:
        """Inverse of `to_dict`.

        Raises:
            SettingsError: an unknown format, an unknown key, or a missing one without a default. Unknown keys
                are errors, because they may change what is computed.
        """
        _check_format(tree.get("format", 1))
        values = {name: value for name, value in tree.items() if name != "format"}
        _check_keys(values, [f.name for f in fields(cls)], "an encoder configuration")
        try:
            plan = values["plan"]
            parts: dict[str, Any] = {name: tuple(x) if isinstance(x, list) else x for name, x in plan.items()}
            _check_keys(parts, [f.name for f in fields(SharingPlan)], "its plan")
            return cls(**values | {"plan": SharingPlan(**parts)})
        except (AttributeError, KeyError, TypeError) as error:
            raise SettingsError(f"incomplete encoder configuration ({error})") from error


_CHOICES = {
    name: get_args(hint)
    for name, hint in get_type_hints(EncoderConfig).items()
    if get_origin(hint) is Literal
}

_FLAGS = tuple(name for name, hint in get_type_hints(EncoderConfig).items() if hint is bool)


def _check(config: EncoderConfig) -> None:
    _check_sizes(config)
    for name, choices in _CHOICES.items():
        value = getattr(config, name)
        if value not in choices:
            raise SettingsError(
                f"{name} `{_shown(value, str)}` is not supported", remedy=f"Use one of {', '.join(choices)}"
            )
    for name in _FLAGS:
        if not isinstance(value := getattr(config, name), bool):
            raise SettingsError(f"{name} must be true or false, got {_shown(value)}")
    for name in ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout_prob"):
        if not _is_number(value := getattr(config, name)) or not 0.0 <= value < 1.0:
            raise SettingsError(f"{name} must be in [0, 1), got {_shown(value)}")
    for name in ("initializer_range", "layer_norm_eps"):
        if not _is_number(value := getattr(config, name)) or not 0 < value <= float_info.max:
            raise SettingsError(f"{name} must be positive and finite, got {_shown(value)}")
    if not _is_number(factor := config.residual_factor) or not 0 < factor <= 1:
        raise SettingsError(
            f"residual_factor must be above 0 and at most 1, got {_shown(factor)}",
            remedy="Use 1 for plain residual branches, or 1/√n or 1/n for n layers",
        )
    _check_positions(config)
    _check_halting(config)
    if config.embedding_mapping == "words" and config.norm == "pre":
        raise SettingsError(
            "a pre-norm encoder maps the sum of its embeddings, not the words alone",
            remedy="Set embedding_mapping=if_needed, or norm=post",
        )
    if config.solver != "none":
        _check_fixed_point(config)


def _check_sizes(config: EncoderConfig) -> None:
    for name, cap in _MAXIMA.items():
        value, least = getattr(config, name), int(name not in _MAY_BE_0)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= cap:
            raise SettingsError(
                f"{name} must be a whole number from {least} to {cap}, got {_shown(value)}",
                remedy=_REMEDIES.get(name),
            )
    if config.plan.depth > MAX_DEPTH:
        raise SettingsError(f"a depth of {config.plan.depth} is more than {MAX_DEPTH}")
    if config.hidden_size % config.num_attention_heads:
        raise SettingsError(
            f"hidden_size {config.hidden_size} is not a multiple of "
            f"num_attention_heads {config.num_attention_heads}"
        )
    if not 0 <= config.pad_token_id < config.vocab_size:
        raise SettingsError(
            f"pad_token_id {_shown(config.pad_token_id)} is outside the vocabulary of {config.vocab_size}"
        )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(value: object, text: Callable[[object], str] = repr) -> str:
    """A value in a message; Python cannot print integers of thousands of digits."""
    if isinstance(value, int) and value.bit_length() > 64:
        return f"a whole number of about {value.bit_length() * log10(2):.0f} digits"
    return text(value)


def _check_positions(config: EncoderConfig) -> None:
    base = config.rotary_base
    if not _is_number(base) or not 1 < base <= float_info.max:
        # An integer may exceed every float.
        raise SettingsError(f"rotary_base must be above 1 and finite, got {_shown(base)}")
    if config.positions == "rotary" and config.head_size % 2:
        raise SettingsError(f"rotary positions need heads of an even size, got {config.head_size}")
    if config.positions == "relative":
        if config.hidden_size % 2 or config.qk_norm:
            raise SettingsError("relative positions need an even hidden_size, and qk_norm: false")
    elif config.clamp_positions or config.relative_biases != "block":
        raise SettingsError(
            "clamp_positions and relative_biases belong to relative positions",
            remedy="Set positions: relative, or leave them out",
        )


def _check_halting(config: EncoderConfig) -> None:
    if not _is_number(epsilon := config.halting_epsilon) or not 0 < epsilon < 1:
        raise SettingsError(f"halting_epsilon must be above 0 and below 1, got {_shown(epsilon)}")
    blocks = config.plan.num_attention_blocks, config.plan.num_feed_forward_blocks
    if config.halting != "none" and blocks != (1, 1):
        raise SettingsError(
            f"halting repeats one block, and this plan has {blocks[0]} of attention and {blocks[1]} of "
            "feed-forward",
            remedy="Share all depths (model.sharing=all), or set halting=none",
        )


def _check_fixed_point(config: EncoderConfig) -> None:
    if not _is_number(tolerance := config.tolerance) or not 0 < tolerance < 1:
        raise SettingsError(f"tolerance must be between 0 and 1, got {_shown(tolerance)}")
    if config.halting != "none":
        raise SettingsError(
            "a loop either halts by itself or runs to its fixed point",
            remedy="Set halting=none or solver=none",
        )
    if config.plan != SharingPlan.shared(config.plan.depth):
        raise SettingsError(
            "a fixed point is that of one block, and the depths of this plan differ",
            remedy="Share all (model.sharing=all, no model.own, no model.low_rank), or set solver=none",
        )
    if config.step_signal != "none":
        raise SettingsError(
            STEP_DEPENDENT,
            remedy="Set step_signal=none, or solver=none",
        )
    if config.norm == "pre":
        raise SettingsError(
            "a pre-norm block adds to its input and leaves nothing as it is, so it has no fixed point",
            remedy="Use norm=post, or set solver=none",
        )
    if not config.input_injection:
        raise SettingsError(
            "a fixed point depends on the input only where every step reads it",
            remedy="Add model.change.input_injection=true",
        )


def _check_format(number: object) -> None:
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise SettingsError(f"the format of an encoder configuration is a whole number, got {number!r}")
    if number > FORMAT:
        raise SettingsError(
            f"the encoder configuration has format {number}, and this version reads up to {FORMAT}",
            remedy="It was written by a newer version of Albertine; load it with that version",
        )


def _check_keys(tree: dict[str, Any], known: list[str], where: str) -> None:
    if odd := sorted(str(name) for name in tree if name not in known):
        near = difflib.get_close_matches(odd[0], known, n=1)
        hint = f"Did you mean `{near[0]}`? Or was" if near else "Was"
        raise SettingsError(
            f"unknown key `{odd[0]}` in {where}", remedy=f"{hint} it written by a newer version of Albertine?"
        )
