"""What an encoder is made of, and the few points in which Google's code and transformers differ."""

from __future__ import annotations

import difflib
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, get_args

from albertine.errors import SettingsError
from albertine.model.plan import SharingPlan

Activation = Literal["gelu_new", "gelu", "relu"]
Mapping = Literal["if_needed", "always"]
Initialization = Literal["truncated_normal", "normal"]

FORMAT = 1
"""Of `EncoderConfig.to_dict`; goes up with every field that an older version would compute wrongly without.
Folders from before there was a number have format 1."""

MAX_DEPTH = 4096
MAX_WIDTH = 1 << 20
MAX_ROWS = 1 << 24


@dataclass(frozen=True)
class EncoderConfig:
    """Shape, sharing plan and semantics of an encoder and its pretraining heads.

    Names follow the reference configurations (section 1.2). The defaults are Google's semantics;
    `huggingface()` gives the ones of transformers (section 1.11).

    Attributes:
        vocab_size, embedding_size, hidden_size, num_attention_heads, intermediate_size: V, E, H, N, F.
        plan: which blocks each depth uses; its depth is the number of layers.
        hidden_act: "gelu_new" is the tanh approximation, which Google's code calls "gelu"; "gelu" is the
            exact erf form.
        classifier_dropout_prob: dropout before a classifier, separate from the hidden dropout.
        embedding_mapping: "if_needed" makes the E→H mapping only where E ≠ H; transformers makes it "always".
        feed_forward_dropout: whether hidden dropout applies to the feed-forward output; transformers' ALBERT
            forgets it.
        sentence_dropout: whether the sentence head has `classifier_dropout_prob`, as in transformers' ALBERT.
        initialization: "truncated_normal" (cut at two sigma), or "normal" with the row of the padding token
            zeroed.

    Raises:
        SettingsError: a size that is not positive, heads that do not divide H, an unknown choice.
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
    initialization: Initialization = field(default="truncated_normal")

    def __post_init__(self) -> None:
        self._check_sizes()
        for name, choices in (
            ("hidden_act", Activation),
            ("embedding_mapping", Mapping),
            ("initialization", Initialization),
        ):
            if getattr(self, name) not in get_args(choices):
                known = ", ".join(get_args(choices))
                raise SettingsError(
                    f"{name} `{getattr(self, name)}` is not supported", remedy=f"Use one of {known}"
                )
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout_prob"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise SettingsError(f"{name} must be in [0, 1), got {getattr(self, name)}")
        if not (self.initializer_range > 0 and self.layer_norm_eps > 0):
            raise SettingsError("initializer_range and layer_norm_eps must be positive")

    def _check_sizes(self) -> None:
        # The caps stop a broken configuration file from asking for terabytes before anything else looks at
        # it.
        caps = {
            "vocab_size": MAX_ROWS,
            "max_position_embeddings": MAX_ROWS,
            "type_vocab_size": MAX_ROWS,
            "embedding_size": MAX_WIDTH,
            "hidden_size": MAX_WIDTH,
            "intermediate_size": MAX_WIDTH,
            "num_attention_heads": MAX_WIDTH,
        }
        for name, cap in caps.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= cap:
                raise SettingsError(f"{name} must be a whole number from 1 to {cap}, got {value!r}")
        if self.num_hidden_layers > MAX_DEPTH:
            raise SettingsError(f"a depth of {self.num_hidden_layers} is more than {MAX_DEPTH}")
        if self.hidden_size % self.num_attention_heads:
            raise SettingsError(
                f"hidden_size {self.hidden_size} is not a multiple of "
                f"num_attention_heads {self.num_attention_heads}"
            )
        if not 0 <= self.pad_token_id < self.vocab_size:
            raise SettingsError(
                f"pad_token_id {self.pad_token_id} is outside the vocabulary of {self.vocab_size}"
            )

    @property
    def num_hidden_layers(self) -> int:
        """Total depth, however few blocks stand behind it."""
        return self.plan.depth

    @property
    def head_size(self) -> int:
        return self.hidden_size // self.num_attention_heads

    @property
    def has_mapping(self) -> bool:
        """Whether there is a dense layer from E to H after the embeddings."""
        return self.embedding_mapping == "always" or self.embedding_size != self.hidden_size

    def with_plan(self, plan: SharingPlan) -> EncoderConfig:
        return replace(self, plan=plan)

    def huggingface(self) -> EncoderConfig:
        """The same shape with the semantics of transformers (section 1.11): plain normal initialisation with
        a zero padding row and, for ALBERT, the mapping always present, no feed-forward dropout and a dropout
        in the SOP head.

        transformers' BERT differs from Google's only in initialisation; an unshared, unfactorised encoder
        counts as BERT.
        """
        if self.is_bert:
            return replace(self, initialization="normal")
        return replace(
            self,
            embedding_mapping="always",
            feed_forward_dropout=False,
            sentence_dropout=True,
            initialization="normal",
        )

    @property
    def is_bert(self) -> bool:
        """Whether this is BERT: nothing shared and no factorised embedding."""
        return self.plan.is_unshared and not self.has_mapping

    def plain(self) -> dict[str, Any]:
        """Every field as plain data, to compare configurations by."""
        tree = asdict(self)
        tree["plan"] = {"attention": list(self.plan.attention), "feed_forward": list(self.plan.feed_forward)}
        return tree

    def to_dict(self) -> dict[str, Any]:
        """Plain data that `from_dict` reads back: the fields, and the number of the format."""
        return {"format": FORMAT, **self.plain()}

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
            parts = {name: tuple(blocks) for name, blocks in plan.items()}
            _check_keys(parts, [f.name for f in fields(SharingPlan)], "its plan")
            return cls(**values | {"plan": SharingPlan(**parts)})
        except (AttributeError, KeyError, TypeError) as error:
            raise SettingsError(f"incomplete encoder configuration ({error})") from error


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
