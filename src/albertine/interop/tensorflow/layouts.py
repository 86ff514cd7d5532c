"""Support of TensorFlow's layouts for a model: which of Google's code, bert4keras and brightmart's compute it
from a checkpoint."""

from __future__ import annotations

from albertine.errors import SettingsError
from albertine.interop.tensorflow.config import EPSILON
from albertine.interop.tensorflow.names import Kind
from albertine.model.config import EncoderConfig
from albertine.model.model import Model
from albertine.model.sharing import SharingPlan


def written_kind(model: Model, wanted: str) -> Kind:
    """The kind of checkpoint for a model in a layout.

    Args:
        wanted: "google" for ALBERT or BERT, "bert4keras", "brightmart" or "xlnet-tf".

    Raises:
        SettingsError: its code computes another function, with everything that differs.
    """
    if not (found := _unsupported(model, wanted)):
        return _kind(model.config, wanted)
    remedy = "Leave --to out, and the model is written as it stands"
    if all(found.values()):
        remedy = "Add --lossy to write the nearest supported model, with a note of what is lost"
    if list(found) == [_ERF]:
        remedy = (
            'Set "hidden_act": "gelu_new" in its config.json if Google trained it: its own models are '
            f"of the tanh form, and transformers' files of them have gelu. Else a{remedy[1:]}"
        )
    raise SettingsError(f"the layout {wanted} has no place for {', '.join(found)}", remedy=remedy)


def _kind(config: EncoderConfig, wanted: str) -> Kind:
    if wanted == "xlnet-tf":
        return "xlnet"
    if wanted == "brightmart":
        return "brightmart"
    unshared = config.plan == SharingPlan.unshared(config.plan.depth)
    # A BERT of bert4keras may have narrow embeddings, and its ALBERT only one block.
    return "bert" if config.is_bert or (wanted == "bert4keras" and unshared) else "albert"


_WHOSE = {
    "google": ("albert", "bert"),
    "bert4keras": ("albert", "bert"),
    "brightmart": ("brightmart",),
    "xlnet-tf": ("xlnet",),
}


_ERF = "hidden_act gelu, the erf form, where its code computes the tanh form"


def _unsupported(model: Model, wanted: str) -> dict[str, bool]:
    """The features of a model that a layout does not support, and whether `lossy_layouts` can drop each."""
    config, xlnet = model.config, wanted == "xlnet-tf"
    found = dict.fromkeys(foreign_features(model), False)
    if config.architecture not in _WHOSE[wanted]:
        mended = config.architecture == "brightmart" and not xlnet
        found[f"the block of {config.architecture or 'no published model'}"] = mended
    elif xlnet:
        found |= _unsupported_by_xlnet(config)
    elif not holds_plan(config.plan, wanted):
        found[f"a plan other than {_PLANS[wanted]}"] = wanted != "brightmart"
    equal = config.embedding_size == config.hidden_size
    if equal and config.has_mapping and config.mapping_input == "normed":
        found["a mapping of embeddings that are as wide as the hidden states"] = False
    if config.layer_norm_eps != EPSILON:
        found[f"layer_norm_eps {config.layer_norm_eps:g}, where its code has {EPSILON:g}"] = True
    if config.hidden_act == "gelu" and wanted != "bert4keras":
        found[_ERF] = True
    foreign = model.heads & ({"mlm", "sop", "nsp"} if xlnet else {"lm"})
    return found | {f"the head {name}": False for name in sorted(foreign)}


def foreign_features(model: Model) -> list[str]:
    """The features of a model that only its own layout and, of some, those of transformers support."""
    config = model.config
    found = ["head_gate"] if config.head_gate else []
    found += [f"residual_factor {config.residual_factor:g}"] if config.residual_factor != 1 else []
    found += ["hidden_act relu2"] if config.hidden_act == "relu2" else []
    if config.output == "own" and not model.heads.isdisjoint({"mlm", "lm"}):
        found.append("an output matrix of its own (transformers' layouts and albertine have it)")
    return found


_PLANS = {
    "google": "groups of whole blocks",
    "bert4keras": "one block for all depths or one for each",
    "brightmart": "one block for all depths",
    "xlnet-tf": "one block for each depth",
}


def holds_plan(plan: SharingPlan, wanted: str) -> bool:
    """Whether a layout of TensorFlow supports a sharing plan."""
    one, each = SharingPlan.shared(plan.depth), SharingPlan.unshared(plan.depth)
    if wanted == "google":
        return plan == plan.blocks and plan.groups() is not None
    return plan in {"bert4keras": (one, each), "brightmart": (one,), "xlnet-tf": (each,)}[wanted]


def _unsupported_by_xlnet(config: EncoderConfig) -> dict[str, bool]:
    found = {}
    if not holds_plan(config.plan, "xlnet-tf"):
        found["shared weights"] = True
    if config.has_mapping:
        found["a mapping of embeddings"] = False
    if not config.type_vocab_size:
        found["type_vocab_size 0, no segments"] = False
    if config.clamp_positions:
        found["clamp_positions, which is a setting of its runs"] = False
    return found
