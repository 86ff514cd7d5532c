"""The model at the start of a pretraining run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from albertine.core.settings import merge, resolve
from albertine.errors import ModelError, SettingsError
from albertine.interop.huggingface.config import encoder_in
from albertine.interop.huggingface.folders import folder_config, load_model
from albertine.interop.model_names import model_folder
from albertine.model.config import EncoderConfig
from albertine.model.init import widen_embeddings, zero_output_projections
from albertine.model.model import Model
from albertine.model.presets import SHARING, preset
from albertine.model.sharing import SharingPlan
from albertine.model.two_streams import check_segments
from albertine.objectives.unigram_baseline import Unigram
from albertine.pretraining.settings import (
    SHORTEST,
    LoopedSharing,
    ModelChoice,
    ObjectiveChoice,
    PretrainingSettings,
)
from albertine.pretraining.student import student_of
from albertine.tokenizers.base import CLS_SEGMENT, Tokenizer
from albertine.tokenizers.load import check_tokenizer
from albertine.tokenizers.prune import has_other_vocabulary

RESIDUAL_FACTORS: Mapping[str, Callable[[int], float]] = {
    "plain": lambda depth: 1.0,
    "inverse_sqrt": lambda depth: depth**-0.5,
    "inverse": lambda depth: 1 / depth,
}
"""The factor of every sublayer's output by the number of layers, of each value of `model.residuals`."""


def encoder_config(
    choice: ModelChoice, vocab_size: int, max_length: int, *, cls_last: bool = False
) -> EncoderConfig:
    """The preset with its changes, the corpus' vocabulary, and positions for the longest sample.

    With another number of layers the sharing plan is resized. Where the preset's embeddings are as wide as
    its hidden states, they stay so at another width.

    Args:
        cls_last: whether the corpus' tokenizer puts [CLS] last, in a segment of its own, which is then the
            summary token of the encoder.

    Raises:
        SettingsError: an unknown preset, or values that do not fit together.
    """
    assert choice.preset is not None
    base = preset(choice.preset)
    changes = choice.change.model_dump()
    plan = _plan(choice.sharing, base.plan, changes.pop("num_hidden_layers", None))
    plan = replace(plan, own=choice.own, low_rank=choice.low_rank)
    if base.embedding_size == base.hidden_size and "hidden_size" in changes:
        changes = {"embedding_size": changes["hidden_size"], **changes}  # BERT has no factorised embeddings
    if cls_last:
        kinds = base.type_vocab_size and max(base.type_vocab_size, CLS_SEGMENT + 1)
        changes = {"summary": "last", "type_vocab_size": kinds, **changes}
    config = replace(
        base,
        plan=plan,
        vocab_size=vocab_size,
        residual_factor=RESIDUAL_FACTORS[choice.residuals](plan.depth),
        output=choice.output,
        **changes,
    )
    if max_length > config.max_position_embeddings:
        raise SettingsError(
            f"objective.max_length {max_length} is more than the {config.max_position_embeddings} positions",
            remedy=f"Set model.change.max_position_embeddings={max_length}, or a shorter max_length",
        )
    return config


def _plan(sharing: str | int | LoopedSharing, preset: SharingPlan, given: int | None) -> SharingPlan:
    """The sharing plan of `model.sharing`.

    Args:
        given: `model.change.num_hidden_layers`; None: the preset's, or what a repeated core gives.
    """
    if isinstance(sharing, LoopedSharing):
        plan = sharing.plan
        if given not in (None, plan.depth):
            raise SettingsError(
                f"has prelude + core × loops + coda = {plan.depth} layers, and "
                f"model.change.num_hidden_layers is {given}",
                where="model.sharing",
                remedy="Leave num_hidden_layers out, or choose loops that give it",
            )
        return plan
    depth = preset.depth if given is None else given
    if isinstance(sharing, int):
        if sharing > depth:
            raise SettingsError(
                f"{sharing} groups need as many layers, and the encoder has {depth}",
                where="model.sharing",
                remedy=f"Set it to {depth} at most, or raise model.change.num_hidden_layers",
            )
        return SharingPlan.grouped(depth, sharing)
    return preset.resized(depth) if sharing == "preset" else SHARING[sharing](depth)


def with_max_length(settings: PretrainingSettings) -> PretrainingSettings:
    """The settings with a default `objective.max_length` of at most the positions of the encoder, the model
    to start from and the teacher.

    Raises:
        ModelError: one of these models is missing or damaged. SettingsError: a stage is longer.
    """
    choice, objective = settings.model, settings.objective
    if "max_length" in objective.model_fields_set:
        return settings
    teacher = None if objective.distillation is None else objective.distillation.teacher
    folders = (choice.start_from, teacher)
    models = [model_folder(folder) for folder in folders if folder is not None]
    found = [encoder_in(folder_config(folder), folder / "config.json")[1] for folder in models]
    positions = [config.max_position_embeddings for config in found]
    if choice.start_from is None and choice.change.max_position_embeddings is not None:
        positions.append(choice.change.max_position_embeddings)
    least = min([objective.max_length, *positions])
    if least == objective.max_length or least < SHORTEST:
        return settings
    tree = settings.model_dump(exclude_unset=True)
    return resolve(PretrainingSettings, merge(tree, {"objective": {"max_length": least}}))


def heads_of(objective: ObjectiveChoice) -> frozenset[str]:
    """The heads that an objective trains."""
    if objective.kind != "masked":
        return frozenset({"lm"})
    return frozenset({"mlm", "pooler"} | ({objective.pairs} if objective.pairs != "none" else set()))


def check_streams(objective: ObjectiveChoice, config: EncoderConfig, tokenizer: Tokenizer | None) -> None:
    """Check that encoder and tokenizer support the segments of an objective.

    Raises:
        SettingsError: the encoder has no segment memory; or XLNet's segments, which end with [CLS], and a
            tokenizer that puts it first, as it would in every later use of the model.
    """
    if not objective.segmented:
        return
    check_segments(config)
    if objective.permutation.reuse and tokenizer is not None and not tokenizer.cls_last:
        raise SettingsError(
            f"such segments end with [CLS], and the corpus' tokenizer puts {tokenizer.special.cls} first",
            where="objective.permutation.reuse",
            remedy="Prepare the text with --kind xlnet, or with a vocabulary of `albertine tokenizer train "
            "--kind xlnet`; or set it to 0, for segments of plain text",
        )


def new_config(
    settings: PretrainingSettings, vocab_size: int, tokenizer: Tokenizer | None = None
) -> EncoderConfig:
    """The configuration of an encoder with new weights. Arguments as `initial_model`.

    Raises:
        ModelError: the encoder does not support the tokenizer's layout of texts.
        SettingsError: as `encoder_config`; pairs with a single segment type.
    """
    choice, objective = settings.model, settings.objective
    cls_last = tokenizer is not None and tokenizer.cls_last
    config = encoder_config(choice, vocab_size, objective.max_length, cls_last=cls_last)
    if tokenizer is not None:
        check_tokenizer(config, tokenizer, f"model.preset {choice.preset}")
    if objective.pairs != "none" and config.type_vocab_size == 1:
        raise SettingsError(
            "model.change.type_vocab_size is 1, and the two parts of a pair have two segment types",
            remedy="Set it to 2, or to 0 for no segment embeddings, or objective.pairs=none",
        )
    check_streams(objective, config, tokenizer)
    return config


def initial_model(
    settings: PretrainingSettings,
    counts: NDArray[np.int64],
    tokenizer: Tokenizer | None = None,
    start: Model | None = None,
) -> Model:
    """New weights from the seed, or those of `model.start_from`, reduced to `model.student` if it is set. A
    masked LM without a sentence head gets a new one if the objective has pairs.

    Args:
        counts: occurrences of every token in the corpus, (V,).
        tokenizer: of the corpus; None: one that puts [CLS] first.
        start: the model in `model.start_from`, if it is loaded already.

    Raises:
        ModelError: the folder to start from lacks a head, or has another vocabulary than the corpus; the
            encoder does not support the tokenizer's layout of texts.
        SettingsError: as `encoder_config`; pairs with a single segment type.
    """
    choice, objective, vocab_size = settings.model, settings.objective, len(counts)
    if choice.start_from is None:
        config = new_config(settings, vocab_size, tokenizer)
        model = Model(config, heads_of(objective), seed=settings.seed)
        model.encoder.apply_settings(settings.training)
        if choice.embeddings == "wide":
            widen_embeddings(model.encoder.embeddings, config.initializer_range)
        if choice.residual_init == "zeros":
            zero_output_projections(model.encoder)
        head = model.lm or model.mlm
        if choice.output_bias == "unigram" and head is not None:
            with torch.no_grad():
                head.bias.copy_(torch.from_numpy(Unigram(counts).log_probabilities))
        return model
    folder = model_folder(choice.start_from)
    model = load_model(folder) if start is None else start
    if choice.student is not None:
        model = student_of(model, choice.student, settings.seed)
    remedy = f"Prepare the text with this model's: albertine prepare TEXT --tokenizer {choice.start_from}"
    if model.config.vocab_size != vocab_size:
        raise ModelError(
            f"has a vocabulary of {model.config.vocab_size} tokens, and that of the corpus has {vocab_size}",
            where=choice.start_from,
            remedy=remedy,
        )
    if tokenizer is not None:
        if has_other_vocabulary(folder, tokenizer):
            raise ModelError(
                "has another vocabulary than the corpus, of the same size",
                where=choice.start_from,
                remedy=remedy,
            )
        check_tokenizer(model.config, tokenizer, choice.start_from)
    if objective.max_length > model.config.max_position_embeddings:
        raise ModelError(
            f"has {model.config.max_position_embeddings} positions, fewer than objective.max_length",
            where=choice.start_from,
            remedy="Set a shorter objective.max_length",
        )
    if objective.pairs != "none" and model.config.type_vocab_size == 1:
        raise ModelError(
            "has one segment type, and the two parts of a pair need two",
            where=choice.start_from,
            remedy="Set objective.pairs=none",
        )
    needed = heads_of(objective)
    model = _with_new_heads(model, needed, settings)
    if missing := sorted(needed - model.heads):
        raise ModelError(
            f"has no {missing[0]} head to go on training",
            where=choice.start_from,
            remedy=_missing_head_remedy(model, missing[0]),
        )
    check_streams(objective, model.config, tokenizer)
    model.encoder.apply_settings(settings.training)
    return model


def _with_new_heads(model: Model, needed: frozenset[str], settings: PretrainingSettings) -> Model:
    """The model with new heads where it may lack them: pooler and sentence head, of a masked LM without
    pairs; and every head, of a student whose teacher has no masked-LM head, and of which only states are
    learned."""
    allowed, new = {"pooler"}, needed - model.heads
    allowed |= {"sop", "nsp"} if model.sentence_objective is None else set()
    allowed |= {"mlm"} if settings.objective.distillation is not None else set()
    if not (new and new <= allowed and ("mlm" in new or model.mlm is not None)):
        return model
    kept = model.heads - {"lm"} if "mlm" in new else model.heads
    return _with_heads(model, needed | kept, settings.seed)


def _missing_head_remedy(model: Model, missing: str) -> str:
    """The remedy for a model without the head that the objective trains."""
    if missing == "lm" and model.mlm is not None:
        return "Set objective.kind=masked; in stages with `causal: true` it predicts next tokens too"
    if missing == "mlm" and model.lm is not None:
        return "Set objective.kind=causal or permutation, as it was trained, or start from a masked LM"
    if missing in ("sop", "nsp"):
        known = model.sentence_objective or "none"
        return f"Start from a pretraining checkpoint, or set objective.pairs={known}"
    return "Start from a pretraining checkpoint"


def _with_heads(model: Model, heads: frozenset[str], seed: int) -> Model:
    """The model with these heads; the weights of new ones are a function of the seed."""
    grown = Model(model.config, heads, seed=seed, precision=model.precision)
    grown.load_state_dict(model.state_dict(), strict=False)
    return grown.train(model.training)
