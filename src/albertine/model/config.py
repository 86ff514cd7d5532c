"""What an encoder is made of, and the few points in which Google's code and transformers differ."""

from __future__ import annotations

import difflib
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, get_args, get_origin, get_type_hints

from albertine.errors import SettingsError
from albertine.model.config_checks import check
from albertine.model.sharing import SharingPlan

Activation = Literal["gelu_new", "gelu", "relu"]
Mapping = Literal["if_needed", "always", "words"]
Mapped = Literal["words", "sum", "normed"]
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
Architecture = Literal["bert", "albert", "brightmart", "roformer", "modernbert", "xlnet"]
Pooling = Literal["mean", "cls", "depths"]
"""Of the last depth the mean over all tokens of a sequence, special ones included, or its [CLS]; or the
mean over all tokens of all depths, the embeddings included."""
Looked = Literal["mean", "cls", "depths", "compared", "whitened"]
"""What a head looks at: a vector of a text; of a classifier also how the two of a pair compare
(`comparison.py`), of text vectors also the mean over all tokens, whitened (`task_model.WhitenedEmbedder`)."""
COMPARED = 4
"""Vectors of width H that the classifier of a pair looks at: differences and products, of two states each."""
SUBJECT_POWER, OBJECT_POWER = 2, 4
"""Of the sigmoids of pointers (`model.relation_head`)."""

FORMAT = 4
"""Of `EncoderConfig.to_dict`; goes up with every field that an older version would compute wrongly without.
Folders from before there was a number have format 1; 2 has positions, norm, feed_forward, biases, qk_norm,
and what each depth has of its own in the plan; 3 has relative positions, `summary`, signals, halting, and
the solver of a fixed point with input injection; 4 has the embedding_mapping "words"."""

_SINCE_2 = {"positions", "rotary_base", "norm", "feed_forward", "biases", "qk_norm"}
_RELATIVE = {"clamp_positions", "relative_biases", "embedding_norm", "summary"}
_LOOP = {"position_signal", "step_signal", "halting", "halting_epsilon", "halting_limit"}
_SINCE_3 = _RELATIVE | _LOOP | {"solver", "tolerance", "input_injection"}
_LATER = _SINCE_2 | _SINCE_3
QK_SCALE = 0.12


@dataclass(frozen=True)
class EncoderConfig:
    """Shape, sharing plan and semantics of an encoder and its pretraining heads.

    Names follow the `AlbertConfig` of google-research/albert (`modeling.py`). The defaults are Google's
    semantics; `huggingface()` gives the ones of transformers.

    Attributes:
        vocab_size, embedding_size, hidden_size, num_attention_heads, intermediate_size: V, E, H, N, F.
        type_vocab_size: kinds of segments; 0: segments are not told apart.
        plan: which blocks each depth uses; its depth is the number of layers.
        hidden_act: "gelu_new" is the tanh approximation, which Google's code calls "gelu"; "gelu" is the
            exact erf form.
        classifier_dropout_prob: dropout before a classifier, separate from the hidden dropout.
        embedding_mapping: "if_needed" makes the E→H mapping only where E ≠ H; transformers makes it "always".
            "words" maps the word embeddings alone, without a bias, before positions and segments, which are H
            wide, are added; the masked-LM head is H wide too (brightmart/albert_zh, `modeling.py`).
        feed_forward_dropout: whether hidden dropout applies to the feed-forward output; transformers' ALBERT
            forgets it.
        sentence_dropout: whether the sentence head has `classifier_dropout_prob`, as in transformers' ALBERT.
        initialization: "truncated_normal" (cut at two sigma), or "normal" with the row of the padding token
            zeroed.
        positions: "learned" is a table added to the word embeddings; "rotary" turns queries and keys by
            angles in proportion to their places (Su et al. 2021); "relative" adds scores of distances (Dai et
            al. 2019) and, in place of a table of segments, of being in one segment (Yang et al. 2019); "none"
            leaves places to a position signal. Without a table `max_position_embeddings` is only the length
            that the model was made for.
        rotary_base: the slowest angle a place is 1 / rotary_base.
        norm: "post" normalises the sum of a block's input and output, "pre" the input alone, which needs one
            more LayerNorm at the end (Xiong et al. 2020). With "pre" the embeddings are mapped to H before
            they are normalised, depth 0 does not normalise them again, and the masked-LM head stays H wide:
            ModernBERT's order. Without `embedding_norm` depth 0 does: Transformer-XL's pre_lnorm.
        feed_forward: "gated" multiplies the activated half of the intermediate layer by its other half
            (Shazeer 2020), so that layer has 2F outputs.
        biases: whether linear layers and LayerNorms of encoder and heads have biases; the outputs of the
            masked-LM and the sentence head have them in any case.
        qk_norm: queries and keys are brought to a root mean square of 1, and scores are their product times
            `QK_SCALE`.
        clamp_positions: relative positions: larger distances count as this one; 0: none does.
        relative_biases: relative positions: every "block" has its own, or all have the "tied" ones of the
            first.
        embedding_norm: whether embeddings are normalised; XLNet's are not.
        summary: which token stands for its whole sequence, the row that poolers and classifiers look at: the
            "first", where BERT and ALBERT have [CLS], or the "last", where XLNet has it.
        position_signal, step_signal: what is added before every step for the place of a token and for the
            number of the step: "sinusoid", a "learned" table, or "none" (Dehghani et al. 2019, 2.1).
        halting: how the outputs of steps are weighted where every position decides itself when it has had
            enough of them: "basic" (the paper's) or "accumulated" (Graves 2016); "none": all take all steps,
            whose number is otherwise the most (`model/halting.py`).
        halting_epsilon: a position halts where the sum of its probabilities exceeds one less this.
        halting_limit: what a position that has not halted gets at the last step: its "remainder", as if it
            halted there, or its probability alone, as in the "reference" code.
        solver: how the fixed point of the one block that all depths share is found, "anderson" or "broyden",
            by at most as many evaluations as the plan has depths (`model/fixed_point.py`); "none": every
            depth is computed, and that is all.
        tolerance: the residual at which a fixed point counts as found.
        input_injection: whether a map of the embeddings is added to queries, keys and values of every depth
            (`model/input_injection.py`).

    Raises:
        SettingsError: a size that is not positive, heads that do not divide H, an unknown choice, halting
            where depths have blocks of their own, a solver where there is no fixed point.
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

    def __post_init__(self) -> None:
        check(vars(self), _CHOICES, _FLAGS)

    @property
    def num_hidden_layers(self) -> int:
        """Total depth, however few blocks stand behind it."""
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
        """How many special pieces stand before a text that is alone in its row: [CLS] text [SEP] or XLNet's
        text [SEP] [CLS]."""
        return 1 if self.summary == "first" else 0

    @property
    def has_mapping(self) -> bool:
        """Whether there is a linear map from E to H."""
        return self.embedding_mapping != "if_needed" or self.embedding_size != self.hidden_size

    @property
    def mapped(self) -> Mapped:
        """What that map is applied to: the embeddings of words alone, the sum of all embeddings, or the sum
        after its LayerNorm. What comes before it is E wide, what comes after it H."""
        if self.embedding_mapping == "words":
            return "words"
        return "sum" if self.norm == "pre" else "normed"

    @property
    def longest_sequence(self) -> int | None:
        """How long a sequence may be; None where no table has to have a row for every place."""
        tables = self.positions == "learned" or self.position_signal != "none"
        return self.max_position_embeddings if tables else None

    @property
    def segments_told_apart(self) -> int | None:
        """How many kinds of segments are; None: none, and any id will do. Relative positions compare them
        without a table, so any few may differ; more than these are ids of something else."""
        if self.type_vocab_size < 2:
            return None
        return 256 if self.positions == "relative" else self.type_vocab_size

    @property
    def halts(self) -> bool:
        """Whether positions decide themselves how many steps they take."""
        return self.halting != "none"

    @property
    def solves(self) -> bool:
        """Whether its depths are a loop that is run to its fixed point."""
        return self.solver != "none"

    @property
    def early_depth(self) -> int | None:
        """The depth whose rows tell texts apart best before any task is learned: the first;
        None, all, of an encoder that solves, where the first is but the beginning of its search."""
        return None if self.solves else 1

    def with_plan(self, plan: SharingPlan) -> EncoderConfig:
        return replace(self, plan=plan)

    def huggingface(self) -> EncoderConfig:
        """The same shape with the semantics of transformers (5.23.0): plain normal initialisation with
        a zero padding row and, for ALBERT, the mapping always present, no feed-forward dropout and a dropout
        in the SOP head.

        transformers' BERT, RoFormer and XLNet differ only in initialisation, and ModernBERT, whose normal is
        cut there too, in nothing; an unshared, unfactorised encoder counts as BERT.
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
        """Whose block this is, whatever is shared: None where nobody has given the combination a name.

        "bert" is where nothing is shared and embeddings are not factorised, "albert" the same block
        otherwise.
        """
        if self.qk_norm or self.plan.low_rank or "injection" in self.plan.own:
            return None
        if self.halts or self.solves or self.input_injection:
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
        """What the papers pretrain such an encoder with, as `Model` names heads."""
        if self.architecture == "xlnet":
            return frozenset({"lm"})
        return frozenset({"mlm", "nsp" if self.is_bert else "sop"})

    def plain(self) -> dict[str, Any]:
        """The fields as plain data, to compare configurations by; those of later formats only where they are
        not at their defaults, so that a folder without them is the same as ever."""
        tree = asdict(self)
        plan = {name: x for name, x in tree["plan"].items() if x or name in ("attention", "feed_forward")}
        tree["plan"] = {name: list(x) if isinstance(x, tuple) else x for name, x in plan.items()}
        return {
            name: value
            for name, value in tree.items()
            if name not in _LATER or value != type(self).__dataclass_fields__[name].default
        }

    def to_dict(self) -> dict[str, Any]:
        """Plain data that `from_dict` reads back: the fields, and the number of the oldest format that has
        them."""
        tree = self.plain()
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
            SettingsError: a format that this version does not know, an unknown key, or a missing one that has
                no default. Unknown words are not passed over, because they may say that other numbers are to
                be computed.
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
