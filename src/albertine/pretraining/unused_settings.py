"""Settings of a run that nothing in it reads: whoever gave them believes that they count."""

from __future__ import annotations

from pathlib import Path

from albertine.core.settings import unused_setting_error
from albertine.model.config import EncoderConfig
from albertine.model.presets import preset
from albertine.pretraining.settings import Masking, ObjectiveChoice, PretrainingSettings, TrainingChoice
from albertine.pretraining.stages import resolved
from albertine.pretraining.teacher import Distillation


def check_read(settings: PretrainingSettings, config: EncoderConfig) -> None:
    """Refuse what was changed for nothing. What a recipe says as it is anyway may stand.

    Args:
        config: of the encoder that the run begins with.

    Raises:
        SettingsError: there is such a setting.
    """
    objective, training, model = settings.objective, settings.training, settings.model
    nobody = Distillation.model_construct(teacher=Path())
    taught = objective.distillation or nobody
    parts = {  # as they are here, and where nobody says
        "training": (training, TrainingChoice.model_construct()),
        "objective": (objective, ObjectiveChoice()),
        "objective.masking": (objective.masking, Masking()),
        "objective.distillation": (taught, nobody),
        "model.change": (model.change, config if model.preset is None else preset(model.preset)),
    }
    read_by = (
        ("training", "decay", training.schedule == "wsd", "training.schedule=wsd"),
        ("objective", "jacobian_frequency", objective.jacobian is not None, "objective.jacobian"),
        ("objective", "reference_defects", *_defects(settings)),
        ("objective.masking", "favor_shorter", _runs(settings), "objective.masking.ngram=2 or more"),
        ("objective.distillation", "temperature", taught.soft > 0, "objective.distillation.soft"),
        ("objective", "short_probability", not objective.streamed, "text that is cut into samples"),
        ("model.change", "rotary_base", config.positions == "rotary", "model.change.positions=rotary"),
        ("model.change", "halting_epsilon", config.halts, "model.change.halting"),
        ("model.change", "halting_limit", config.halts, "model.change.halting"),
        ("model.change", "tolerance", config.solves, "model.change.solver"),
    )
    for part, name, is_read, reader in read_by:
        given, usual = (getattr(where, name) for where in parts[part])
        if not is_read and given not in (None, usual):
            raise unused_setting_error(f"{part}.{name}", reader, usual)


def _defects(settings: PretrainingSettings) -> tuple[bool, str]:
    """Whether there is anything that the reference does wrong, and what would have it. Without pairs no
    [SEP] stands inside a sample; in what goes on from step to step one stands between documents."""
    objective = settings.objective
    if objective.kind == "causal":
        return False, "another objective.kind"
    paired = any(stage.objective.pairs != "none" for stage in resolved(settings))
    return objective.streamed or paired, "objective.pairs=sop or nsp"


def _runs(settings: PretrainingSettings) -> bool:
    """Whether several words in a row are hidden, in a stage at least."""
    here = settings.objective.masking.ngram
    longest = (here if stage.ngram is None else stage.ngram for stage in settings.stages)
    return settings.objective.kind == "masked" and max(longest, default=here) > 1
