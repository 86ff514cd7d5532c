"""The model card from the run that produced the model. Facts that no file records are stated as unknown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from albertine.core.files import is_run_checkpoint, os_errors_as_run_errors, replace_durably
from albertine.errors import ModelError
from albertine.evaluation import card_sections as sections
from albertine.evaluation.card_metadata import CardMetadata, carbon, emissions, licence
from albertine.evaluation.hub_results import FILES, HUB, model_index, result_files
from albertine.evaluation.run_facts import Facts, read_facts
from albertine.interop.heads import has_own_head, task_in
from albertine.interop.hub.card import (
    NAME,
    RESULTS,
    Card,
    default_title,
    describe_shape,
    head_of,
    render_card,
    stored_metadata,
    usage_section,
)
from albertine.interop.hub.citations import citation
from albertine.interop.hub.download import is_hub_name
from albertine.interop.huggingface.config import read_model_type
from albertine.interop.huggingface.folders import read_folder
from albertine.interop.model_folder import ModelFolder
from albertine.interop.save_checks import parameters_of
from albertine.interop.sentence_transformers import MODULES, makes_vectors
from albertine.tasks.families import FAMILIES, KINDS
from albertine.tasks.kind_settings import TaskCard

UNKNOWN = "unknown"
"""The Hub's value for a licence that is not stated."""


def write_card(folder: Path, metadata: CardMetadata) -> tuple[Path, list[Path]]:
    """Write README.md and `.eval_results` into a model folder. Text that a person wrote in README.md is kept;
    outdated scores of an earlier card are deleted.

    Returns:
        The paths of the card and of the files with scores.

    Raises:
        ModelError: no model. SettingsError: invalid metadata. RunError: the disk refuses, or the
            run is not done.
    """
    if is_run_checkpoint(folder):
        remedy = "Name best/ or final/ of the run, or convert it: albertine convert CHECKPOINT FOLDER"
        raise ModelError(
            "is a checkpoint of a run, beside which no card is kept", where=folder, remedy=remedy
        )
    card = folder / NAME
    before = card.read_text(encoding="utf-8", errors="replace") if card.is_file() else ""
    metadata = metadata.merged_with(
        stored_metadata(before) | _in_head(head_of(before))
    )  # a person may have edited the head
    found, facts = read_folder(folder), facts_of_kind(read_facts(folder))
    files = result_files(facts)
    with os_errors_as_run_errors(card):
        replace_durably(card, render_card(run_card(folder, found, facts, metadata), before).encode())
        written = []
        for name, content in files.items():
            (folder / RESULTS).mkdir(exist_ok=True)
            replace_durably(folder / RESULTS / name, content)
            written.append(folder / RESULTS / name)
        if "albertine" in str(head_of(before).get("tags")):
            for name in FILES - files.keys():
                (folder / RESULTS / name).unlink(missing_ok=True)
    return card, written


def _in_head(head: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata from the YAML head of a card, where a person may edit it."""
    languages = head.get("language")
    found: dict[str, Any] = {
        "licence": head.get("license"),
        "languages": [languages] if isinstance(languages, str) else languages,
        "base": head.get("base_model"),
    }
    kinds: dict[str, Any] = {"licence": str, "languages": list, "base": str | list}
    known = {key: value for key, value in found.items() if isinstance(value, kinds[key])}
    return known | ({"licence": None} if head.get("license") == UNKNOWN else {})


def facts_of_kind(facts: Facts) -> Facts:
    """The facts of a run with those of its kind of task."""
    kind = KINDS.get(str((facts.settings.get("task") or {}).get("kind")))
    if kind is None:
        return facts
    return replace(facts, share_passages=kind.share_passages, as_benchmark=kind.as_benchmark)


def run_card(folder: Path, found: ModelFolder, facts: Facts, metadata: CardMetadata) -> Card:
    """The card of a model.

    Args:
        folder: of the model; its files give the run and the pooling.
    """
    config = {"model_type": read_model_type(found.config), **found.config}
    task = task_in(config)
    vectors = makes_vectors(folder)
    known = FAMILIES[task].card if task in FAMILIES else None
    pipeline = "sentence-similarity" if vectors else (known or TaskCard()).pipeline
    if pipeline is None and task is None:
        pipeline = "fill-mask" if found.model.mlm is not None else "feature-extraction"
    name = facts.name or default_title(config)
    of_corpus = (facts.corpus.language,) if facts.corpus else None
    of_run = facts.base.partition("@")[0] if is_hub_name(facts.base) else None  # no revision: not of the id
    spoken, base = metadata.languages or of_corpus, metadata.base or of_run
    tags = ["albertine", str(config["model_type"]), facts.made or "converted"]
    loaded = config["model_type"] != "albertine" and not has_own_head(config)
    tags += ["transformers"] if loaded else []
    tags += ["sentence-transformers"] if (folder / MODULES).is_file() else []
    head = {
        "language": list(spoken) if spoken else None,
        "license": metadata.licence or UNKNOWN,
        "library_name": "albertine",
        "pipeline_tag": pipeline,
        "tags": tags,
        "base_model": base,
        "datasets": [HUB[facts.data].dataset] if facts.data in HUB else None,
        "model-index": model_index(facts, name, pipeline),
        "co2_eq_emissions": emissions(facts, metadata),
    }
    count = parameters_of(found.model, found.extra)
    parts = {
        "model": f"# {name}\n\n{describe_shape(config, count, found.encoder)} {sections.origin(facts)}",
        "data": ["## Data", "", *sections.data(facts)],
        "training": ["## How it was made", "", *sections.training(facts)],
        "scores": ["## Scores", "", *sections.scores(facts)],
        "limits": ["## What it is not for", "", *sections.limits(found, facts, spoken)],
        "licence": f"## Licence\n\n{licence(metadata)}",
        "carbon": f"## Carbon\n\n{carbon(facts, metadata)}",
        "use": usage_section(config, more=_usage_example(config, known, vectors), names=found.names),
        "cite": f"## Citation\n\n{citation(str(config['model_type']))}",
    }
    bodies = {key: part if isinstance(part, str) else "\n".join(part) for key, part in parts.items()}
    own = replace(
        metadata,
        languages=None if metadata.languages == of_corpus else metadata.languages,
        base=None if metadata.base == of_run else metadata.base,
    )
    return Card(head, bodies, own.as_dict())


def _usage_example(config: Mapping[str, Any], card: TaskCard | None, vectors: bool) -> list[str]:
    """Lines of Python that use a model of a task."""
    model = 'albertine.Predictor("path/to/this/folder")'
    if vectors:
        return ["", f'vectors = {model}.embed(["a text", "another"])']
    call = None if card is None else card.call(config)
    return [] if call is None else ["", f"{model}.{call}"]
