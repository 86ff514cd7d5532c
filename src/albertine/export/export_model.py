"""An export: a model folder for another runtime, verified against its source before it takes its place.

OUT/config.json and tokenizer   as in a saved model folder
OUT/onnx/model.onnx, …          what each format wrote
OUT/export.json                 what is in it, and how near it is to its source

An application for another server (`applications.py`) is the other kind of export: files and a copy of the
model.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from albertine.core.files import os_errors_as_run_errors, replaced_folder, user_path
from albertine.errors import ModelError, SettingsError
from albertine.export.applications import APPLICATIONS, application_of, write_application
from albertine.export.formats import ExportedFile, ExportOptions, check_options, format_of
from albertine.export.source_model import Opened, opened
from albertine.export.verify import ALIKE, PLACES, Arrays, Verified, batches, framed, rounding_of, verify
from albertine.interop.exported_folder import REPORT, TRANSITIONS
from albertine.interop.folder_writer import carry_over, fit_tokenizer
from albertine.interop.model_files import EXPORT
from albertine.interop.model_names import check_separate, model_folder
from albertine.interop.pickled import PICKLED, PICKLED_INDEX
from albertine.interop.sentence_transformers import DENSE, LAYERS, MODULES, POOLING, PROMPTS, TRANSFORMER
from albertine.interop.weights import INDEX, SINGLE

VERSION = 1
"""Version of the layout of export.json."""
WRITTEN = (
    *("config.json", REPORT, TRANSITIONS, "onnx", "openvino", "torch", "model.gguf"),
    *("spiece.model", "special_tokens_map.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt"),
    "added_tokens.json",
    *(MODULES, TRANSFORMER, PROMPTS, POOLING, DENSE, LAYERS),
)
"""Files and folders that exports write."""
OF_APPLICATIONS = ("app.py", "config.yaml", "model", "README.md")
"""The same of applications, besides the folder that has the name of the model."""
WEIGHTS = (SINGLE, INDEX, PICKLED, PICKLED_INDEX)


@dataclass(frozen=True)
class Exported:
    """The result of an export.

    Attributes:
        report: the content of export.json. lines: the same as text.
    """

    folder: Path
    report: dict[str, Any]
    lines: list[str]


def export(
    model: str | Path,
    output: str | Path | None = None,
    to: Sequence[str] = ("onnx",),
    *,
    head: str = "task",
    overwrite: bool = False,
    options: ExportOptions | None = None,
) -> Exported:
    """Write a model for other runtimes, and verify what was written.

    Args:
        model: a model folder, a run, a released model or `owner/name` of the hub. output: a new folder;
            None: `export` in the folder of the model, where `Predictor(model, runtime=…)` finds it.
        to: names of `formats.FORMATS`, or one of `applications.APPLICATIONS`. head: one of `opened.HEADS`.
        overwrite: replace an earlier export; other files in its folder, such as a card, stay.

    Raises:
        ModelError: the model cannot be read, computes what has no graph, or its export differs from it.
        SettingsError: `output` exists, or holds weights; an unknown format, an option that does not fit.
        RunError: a library is missing, the disk refuses. In each case nothing is written.
    """
    options = options or ExportOptions()
    if any(name in APPLICATIONS for name in to):
        return _application(str(model), output, tuple(dict.fromkeys(to)), head, overwrite, options)
    folder = _beside(model) if output is None else user_path(output)
    chosen = {name: format_of(name) for name in dict.fromkeys(to)}
    if not chosen:
        raise SettingsError("an export needs a format", remedy="Add --to onnx")
    check_options(options, chosen)
    _check_output(folder, model_folder(model), overwrite)
    source = opened(model, head)
    with os_errors_as_run_errors(folder), replaced_folder(folder) as beside:
        _describe(source, beside)
        written = [one for module in chosen.values() for one in module.write(source, beside, options)]
        found = {one.name: _verified(source, one) for one in written}
        report = _report(source, tuple(chosen), written, found)
        (beside / REPORT).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
        carry_over(folder, beside, WRITTEN)
    return Exported(folder, report, _lines(written, found))


def _application(
    model: str,
    output: str | Path | None,
    to: Sequence[str],
    head: str,
    overwrite: bool,
    options: ExportOptions,
) -> Exported:
    """Write an application with a copy of a model. Raises as `export`."""
    module = application_of(to, head)
    check_options(options, {})
    if output is None:
        raise SettingsError(
            f"an application for {to[0]} needs a folder",
            remedy=f"Name one to write: albertine export {model} OUT --to {to[0]}",
        )
    folder, source = user_path(output), model_folder(model)
    _check_output(folder, source, overwrite)
    with os_errors_as_run_errors(folder), replaced_folder(folder) as beside:
        copied = write_application(module, source, model, head, beside)
        lines = module.write(copied, beside)
        report = {
            "version": VERSION,
            "formats": list(to),
            "answers": copied.answers,
            "source": {"name": source.name, "digest": copied.digest},
            "files": {},
            "versions": _versions(),
        }
        (beside / REPORT).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
        carry_over(folder, beside, (*WRITTEN, *OF_APPLICATIONS))
    return Exported(folder, report, [f"{copied.name}: {copied.answers}, for {to[0]}", *lines])


def _beside(model: str | Path) -> Path:
    """The folder of the export beside a model.

    Raises:
        SettingsError: the model is not the user's own: it comes with the package, or from the hub.
    """
    if not user_path(model).exists():
        raise SettingsError(
            "is no folder of yours, to write its export in",
            where=model,
            remedy=f"Name a folder to write: albertine export {model} OUT",
        )
    return model_folder(model) / EXPORT


def _check_output(folder: Path, source: Path, overwrite: bool) -> None:
    """Refuse to write over anything but an earlier export."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    check_separate(source, folder)
    if not (folder / REPORT).is_file():
        raise SettingsError("exists and is no export", where=folder, remedy="Name a new folder to write")
    if weights := [name for name in WEIGHTS if (folder / name).is_file()]:
        raise SettingsError(
            f"is more than an export: it holds {weights[0]}, which would be lost",
            where=folder,
            remedy="Name a new folder to write",
        )
    if not overwrite:
        raise SettingsError("exists", where=folder, remedy="Add --overwrite, or name another folder")


def _describe(source: Opened, folder: Path) -> None:
    """config.json, tokenizer, and what reads the outputs."""
    text = json.dumps(source.config, indent=2, ensure_ascii=False) + "\n"
    (folder / "config.json").write_text(text, encoding="utf-8")
    if source.tokenizer is not None:
        source.tokenizer.save(folder)
        fit_tokenizer(folder, source.config)
    for name, content in source.files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)


def _verified(source: Opened, one: ExportedFile) -> Verified:
    """Compare with the source.

    Raises:
        ModelError: float32 that is not exact, or a coarser format below the least cosine.
    """
    head = one.head or source.head
    inputs: Iterable[Arrays] | None = one.inputs
    if one.precision != "float32" and head.vectors and source.tokenizer is not None:
        inputs = framed(batches(head.base.config) if inputs is None else inputs, source.tokenizer)
    found = verify(head, one.run, packed=one.packed, inputs=inputs)
    if one.precision == "float32" and not found.exact:
        found = replace(found, rounding=rounding_of(head))
    if one.precision == "float32" and not found.exact:
        worst = max(found.shapes, key=lambda shape: shape.difference)
        raise ModelError(
            f"its export {one.name} differs from its source: at {worst.batch} x {worst.length} a number is "
            f"off by {worst.difference:.1e}, where the largest is {worst.largest:.1e}",
            where=source.path,
            remedy="Please report this with the model's config.json; nothing was written",
        )
    if one.precision == "float32" and found.places < PLACES:
        raise ModelError(
            f"its export {one.name} points elsewhere: in one shape {found.places:.0%} of its places are the "
            "model's",
            where=source.path,
            remedy="Please report this with the model's config.json; nothing was written",
        )
    if one.precision != "float32" and found.cosine < ALIKE[one.precision]:
        raise ModelError(
            f"its export {one.name} is another model: least cosine {found.cosine:.4f}, wanted "
            f"{ALIKE[one.precision]}",
            where=source.path,
            remedy=f"Export it without {one.precision}; nothing was written",
        )
    return found


def _report(
    source: Opened, to: Sequence[str], written: Sequence[ExportedFile], found: dict[str, Verified]
) -> dict[str, Any]:
    return {
        "version": VERSION,
        "formats": list(to),
        "answers": source.answers,
        "source": {"name": source.path.name, "digest": source.digest},
        "files": {
            one.name: {"precision": one.precision, **one.facts, **found[one.name].as_data()}
            for one in written
        },
        "versions": _versions(),
    }


def _versions() -> dict[str, str]:
    """The versions of the packages involved."""
    found = {"python": platform.python_version()}
    for name in ("albertine", "torch", "onnx", "onnxscript", "onnxruntime", "openvino", "nncf", "ray"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _lines(written: Sequence[ExportedFile], found: dict[str, Verified]) -> list[str]:
    lines = []
    for one in written:
        result = found[one.name]
        size = f", {one.facts['bytes']:,} bytes" if "bytes" in one.facts else ""
        lines.append(
            f"{one.name}: {one.precision}{size}, {len(result.shapes)} shapes, greatest difference "
            f"{result.difference:.1e}, least cosine {result.cosine:.6f}"
        )
        if "products" in one.facts:
            lines.append(f"  {one.facts['quantised']} of {one.facts['products']} matrix products in int8")
        lines += [f"  {note}" for note in one.facts.get("notes", ())]
        lines += [f"  {line}" for line in result.lines()]
    return lines
