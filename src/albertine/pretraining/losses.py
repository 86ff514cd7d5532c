"""Which loss a run trains by: that of its objective, and what its loop over depths pays beside it."""

from __future__ import annotations

from functools import partial

from albertine.errors import SettingsError
from albertine.model.config import EncoderConfig
from albertine.model.model import Model
from albertine.objectives.distillation import DistillationLosses
from albertine.objectives.equilibrium import EquilibriumLosses
from albertine.objectives.losses import WEIGHT, pondering_losses, pretraining_losses
from albertine.objectives.stream_losses import StreamLoss
from albertine.pretraining.settings import ObjectiveChoice, PretrainingSettings
from albertine.pretraining.stages import resolved_stages
from albertine.training.distributed import World
from albertine.training.step import LossFunction


def check_losses(objective: ObjectiveChoice, config: EncoderConfig) -> None:
    """Refuse what is to be paid for and this encoder does not do.

    Raises:
        SettingsError: a price for steps and no halting, or a penalty on the way to a fixed point and no way.
    """
    if objective.ponder is not None and not config.halts:
        raise SettingsError(
            "an encoder that does not halt has no steps to pay for",
            where="objective.ponder",
            remedy="Leave it out, or set model.change.halting=basic",
        )
    if objective.jacobian is not None and not config.solves:
        raise SettingsError(
            "the Jacobian is that of a step to a fixed point, and this encoder has a fixed number of depths",
            where="objective.jacobian",
            remedy="Leave it out, or set model.change.solver=anderson",
        )


def losses_of(
    settings: PretrainingSettings, model: Model, world: World, teacher: Model | None = None
) -> LossFunction:
    """What a model is trained by.

    Args:
        teacher: on the device of the model, where `objective.distillation` names one.

    Raises:
        SettingsError: see `check_losses`, or a student and a teacher of other kinds.
    """
    objective, config = settings.objective, model.config
    check_losses(objective, config)
    if objective.segmented:
        return StreamLoss(config, objective.memory, settings.training.batch_size, world.add)
    if objective.distillation is not None and teacher is not None:
        if any(one.halts or one.solves for one in (config, teacher.config)):
            raise SettingsError(
                "each depth of a student follows one of its teacher's, and one of the two has no fixed "
                "number of them",
                where="objective.distillation",
                remedy="Take an encoder that neither halts nor solves",
            )
        return DistillationLosses(model, teacher, objective.distillation.lessons, settings.seed)
    if config.halts:
        return partial(pondering_losses, weight=WEIGHT if objective.ponder is None else objective.ponder)
    if config.solves:
        return EquilibriumLosses(model, objective.jacobian or 0.0, objective.jacobian_frequency)
    return pretraining_losses


def parts_of_run(settings: PretrainingSettings, config: EncoderConfig) -> tuple[str, ...]:
    """The names that the parts of its loss have, in all of its stages. A step adds as many numbers on every
    rank, so none may learn them from what it was dealt alone."""
    objective = settings.objective
    paired = any(stage.objective.pairs != "none" for stage in resolved_stages(settings))
    there = {"sentence": paired, "ponder": config.halts, "jacobian": objective.jacobian is not None}
    lessons = () if objective.distillation is None else objective.distillation.lessons.names
    return ("mlm", *(name for name, is_there in there.items() if is_there), *lessons)
