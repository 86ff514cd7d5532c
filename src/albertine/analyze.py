"""Analysis of encoders, as the commands of `albertine analyze`: `albertine.analyze.depth(model, texts)`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from albertine.api import naming_arguments
from albertine.errors import SettingsError, check_integer, needs_torch
from albertine.tasks.input_texts import texts_of

if TYPE_CHECKING:
    from albertine.analysis.attention import AttentionMaps
    from albertine.analysis.depth import DepthStudy
    from albertine.analysis.layers import LayerStatistics
    from albertine.analysis.lens import Lens
    from albertine.analysis.probe import DepthScores
    from albertine.evaluation.minimal_pairs import Scoring

__all__ = ["attention", "depth", "layers", "lens", "parameters", "probe"]


@needs_torch
@naming_arguments()
def attention(model: str | Path, text: str) -> AttentionMaps:
    """Attention weights of a text in every layer and head, entropy and distance of each head, and the
    similarity of layers.

    Args:
        model: any name of a model.

    Raises:
        AlbertineError: there is no such model, no text, or it is longer than the model.
    """
    from albertine.analysis.attention import attention_of_named

    return attention_of_named(model, text)


@needs_torch
@naming_arguments()
def depth(
    model: str | Path, texts: str | Iterable[str], *, depths: int = 48, max_length: int = 128
) -> DepthStudy:
    """Residual and cosine of every layer; of a model whose layers share all weights also of depths beyond
    them, the fixed point, and the rate of convergence.

    Args:
        model: any name of a model.
        texts: to read.
        depths: how often a shared layer is applied; of other models the most layers.
        max_length: tokens of a text that are read.

    Raises:
        AlbertineError: there is no such model or no text.
    """
    from albertine.analysis.depth import study_texts

    check_integer("depths", depths, 2)
    check_integer("max_length", max_length, 1)
    return study_texts(model, texts_of(texts), depths=depths, max_length=max_length)[0]


@needs_torch
@naming_arguments()
def layers(model: str | Path, texts: str | Iterable[str], *, max_length: int = 128) -> LayerStatistics:
    """Statistics of the states of every layer: L2 distance, cosine and angle between its input and output
    (Figure 1 of the ALBERT paper), norm, anisotropy, effective rank, curvature, and CKA between layers.

    Args:
        model: any name of a model.
        texts: to read; two or more for intervals and anisotropy.
        max_length: tokens of a text that are read.

    Returns:
        Mean and 95 % interval over texts as float64 arrays, (L,) for L layers, (L+1,) where the embeddings
        are included; CKA (L+1, L+1).

    Raises:
        AlbertineError: there is no such model or no text.
    """
    from albertine.analysis.layers import layer_statistics_of

    check_integer("max_length", max_length, 3)
    return layer_statistics_of(model, texts_of(texts), max_length=max_length)


@needs_torch
@naming_arguments()
def lens(
    model: str | Path,
    text: str,
    *,
    depths: Sequence[int] | None = None,
    top: int = 5,
    places: Sequence[int] | None = None,
) -> Lens:
    """The masked-LM head applied after every layer: the most probable tokens at every [MASK] of a text. In a
    text without [MASK] every token is masked alone.

    Args:
        model: any name of a model with a masked-LM head.
        depths: from 0, the embeddings; beyond the layers where all of them are one block. Default: up to the
            layers of the model, or twice as many where they can be repeated.
        top: number of tokens.
        places: indices of tokens, [CLS] at 0, to look at instead.

    Raises:
        AlbertineError: there is no such model, it has no masked-LM head, there is no text, or it is longer
            than the model.
    """
    from albertine.analysis.lens import lens_of_named

    return lens_of_named(model, text, depths=depths, top=top, places=places)


@needs_torch
@naming_arguments()
def parameters(
    models: str | Sequence[str], *, length: int | Sequence[int] | None = None
) -> list[dict[str, Any]]:
    """Parameters by part, operations per token and bytes of models, as `albertine.info` has them.

    Args:
        models: a preset, model or recipe, or several.
        length: of sequences, for the operations; default: 128 and 512, as far as all models have positions.

    Raises:
        AlbertineError: there is no such model, or it has fewer positions.
    """
    from albertine.pretraining.model_costs import common_lengths, costs

    names = [models] if isinstance(models, str) else list(models)
    lengths = common_lengths(names, [length] if isinstance(length, int) else length)
    return [costs(name, lengths) for name in names]


@needs_torch
@naming_arguments()
def probe(
    model: str | Path,
    *,
    suite: str | None = None,
    task: str | Path | None = None,
    data: str | Path | None = None,
    limit: int | None = None,
    scoring: Scoring = "pll",
) -> DepthScores:
    """The score of every depth with operations and seconds: of minimal pairs by the masked-LM head, or of a
    linear probe on the mean over tokens of the states.

    Args:
        model: any name of a pretrained model.
        suite: "blimp" or "sling", with its folder in `data`.
        task: a folder with the tables train and dev, or a data set by name with its folder in `data`.
        limit: most pairs of a paradigm, default 100; or most examples of train and of dev, default 2000.
        scoring: of minimal pairs, as of `albertine.suite`.

    Raises:
        AlbertineError: neither or both of suite and task, or something is missing or does not fit.
    """
    from albertine.core.files import user_path

    if (suite is None) == (task is None):
        raise SettingsError("takes one of suite and task", where="albertine.analyze.probe")
    if limit is not None:
        check_integer("limit", limit, 1)
    folder = None if data is None else user_path(data)
    if suite is not None:
        from albertine.pretraining.scores import suite_scores_by_depth

        if folder is None:
            raise SettingsError("a suite needs the folder of its files", remedy="Give it as data=")
        return suite_scores_by_depth(suite, model, folder, scoring=scoring, limit=limit or 100)
    if scoring != "pll":
        raise SettingsError("scoring is of a suite, not of a task", remedy="Leave it out")
    from albertine.tasks.layer_probe import EXAMPLES, probe_layers, task_of_name

    return probe_layers(model, task_of_name(str(task), folder), examples=limit or EXAMPLES)
