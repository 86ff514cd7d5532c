"""The loss function of a run: its objective, and the costs of adaptive layer loops."""

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
    """
    Raises:
        SettingsError: a ponder cost without halting, or a Jacobian penalty without a solver.
    """
    if objective.ponder is not None and not config.halts:
        raise SettingsError(
            "this encoder does not halt, and has no ponder cost",
            where="objective.ponder",
            remedy="Leave it out, or set model.change.halting=basic",
        )
    if objective.jacobian is not None and not config.solves:
        raise SettingsError(
            "the Jacobian is that of a fixed-point iteration, and this encoder has a fixed number of layers",
            where="objective.jacobian",
            remedy="Leave it out, or set model.change.solver=anderson",
        )


def losses_of(
    settings: PretrainingSettings, model: Model, world: World, teacher: Model | None = None
) -> LossFunction:
    """The loss function of a run.

    Args:
        teacher: on the device of the model, where `objective.distillation` names one.

    Raises:
        SettingsError: see `check_losses`; or a distillation without a fixed number of layers.
    """
    objective, config = settings.objective, model.config
    check_losses(objective, config)
    if objective.segmented:
        return StreamLoss(config, objective.memory, settings.training.batch_size, world.add)
    if objective.distillation is not None and teacher is not None:
        if any(one.halts or one.solves for one in (config, teacher.config)):
            raise SettingsError(
                "each layer of a student is matched with one of its teacher's, and one of the two has no "
                "fixed number of layers",
                where="objective.distillation",
                remedy="Take an encoder that neither halts nor solves",
            )
        return DistillationLosses(model, teacher, objective.distillation.loss_weights, settings.seed)
    if config.halts:
        return partial(pondering_losses, weight=WEIGHT if objective.ponder is None else objective.ponder)
    if config.solves:
        return EquilibriumLosses(model, objective.jacobian or 0.0, objective.jacobian_frequency)
    return pretraining_losses


def parts_of_run(settings: PretrainingSettings, config: EncoderConfig) -> tuple[str, ...]:
    """The names of the parts of the loss over all stages. Every rank needs them all, as a step sums an equal
    number of values on every rank."""
    objective = settings.objective
    paired = any(stage.objective.pairs != "none" for stage in resolved_stages(settings))
    there = {"sentence": paired, "ponder": config.halts, "jacobian": objective.jacobian is not None}
    names = () if objective.distillation is None else objective.distillation.loss_weights.names
    return ("mlm", *(name for name, is_there in there.items() if is_there), *names)
