"""What computes a model: its weights by torch, or the graphs of an export beside them; and which of these is
fastest on this processor, as `albertine doctor` measured it.

MODEL/export                                  an exported folder, beside the weights that it was made of
~/.cache/albertine/runtimes/NAME.json         a measurement of a model and its export on a processor

A measurement lies with the user and not with the model, since a model folder may be read-only, or shared by
machines with different processors.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, get_args

from albertine.core.files import make_folder, read_json, replace_durably, to_json, user_path
from albertine.core.number_formats import InferencePrecision, Runtime
from albertine.core.processors import cpu_flags, cpu_name, usable_threads
from albertine.errors import ModelError, SettingsError
from albertine.interop.exported_folder import REPORT, GraphRuntime, is_exported
from albertine.interop.model_files import EXPORT, digest_of

MODULES: dict[str, str] = {"torch": "torch", "onnx": "onnxruntime", "openvino": "openvino"}
"""The Python module of each runtime."""
GAIN = 0.95
"""A graph is chosen where it takes less than this share of the time of torch: the rest is noise."""
_VERSION = 1


@dataclass(frozen=True)
class Timed:
    """A way to compute a model that was measured, with predictions like those of float32.

    Attributes:
        runtime: torch, onnx or openvino. precision: the number format.
        default: it is what the precision `auto` chooses in this runtime.
        milliseconds: by the name of what was computed.
    """

    runtime: str
    precision: str
    default: bool
    milliseconds: dict[str, float]

    def relative_to(self, other: Timed) -> float:
        """The geometric mean of the ratios of its times to those of another."""
        product = 1.0
        for name, time in self.milliseconds.items():
            product *= time / other.milliseconds[name]
        return float(product ** (1 / len(self.milliseconds)))


def export_of(folder: Path) -> Path | None:
    """The exported folder that belongs to a model: itself, or what lies beside its weights."""
    return next((path for path in (folder, folder / EXPORT) if is_exported(path)), None)


def check_export(folder: Path, export: Path) -> None:
    """
    Raises:
        ModelError: the export was not made of the weights and configuration that the folder has now.
    """
    source = read_json(export / REPORT).get("source")
    if not isinstance(source, dict) or source.get("digest") != digest_of(folder):
        raise ModelError(
            "is the export of other weights or of another configuration than its model has now",
            where=export,
            remedy=f"Export the model again: albertine export {folder} --overwrite; or use --runtime torch",
        )


def resolve_runtime(
    folder: Path, runtime: Runtime | None, precision: InferencePrecision = "auto", device: str = "cpu"
) -> tuple[Path, GraphRuntime | None]:
    """The folder to open for a model, itself or its export, and the runtime of the graph; None: weights by
    torch, of an exported folder onnxruntime before OpenVINO.

    Args:
        runtime: None: as `auto` without a measurement.

    Raises:
        ModelError: an export is required, and there is none or it is of other weights.
        SettingsError: an unknown runtime, or torch for an exported folder.
    """
    if runtime is None:
        return folder, None
    if runtime not in get_args(Runtime):
        known = ", ".join(get_args(Runtime))
        raise SettingsError(f"there is no runtime `{runtime}`", remedy=f"Use one of {known}")
    export = export_of(folder)
    if runtime == "torch" and export == folder:
        raise SettingsError(
            "is an exported graph, which torch does not compute",
            where=folder,
            remedy="Leave the runtime out, or name the model folder that it was exported from",
        )
    if runtime == "torch" or (runtime == "auto" and (export is None or device != "cpu")):
        return folder, None
    if export is None:
        raise ModelError(
            f"has no export beside it that {runtime} could compute",
            where=folder,
            remedy=f"Make one: albertine export {folder} --to {runtime}",
        )
    if export != folder:
        check_export(folder, export)
    if runtime == "auto":
        found = fastest(folder, export, precision)
        if found is None or found == "torch":
            return folder, None
        runtime = found
    assert runtime in ("onnx", "openvino")
    return export, runtime


def fastest(folder: Path, export: Path, precision: str) -> Literal["torch", "onnx", "openvino"] | None:
    """The fastest runtime of those that are installed, by the measurement of this model and export on this
    processor; None where there is none for this precision."""
    try:
        tree = read_json(record_file(folder, export))
        ways = [Timed(**way) for way in tree["ways"]] if tree["version"] == _VERSION else []
        wanted = [way for way in ways if (way.default if precision == "auto" else way.precision == precision)]
        usable = [way for way in wanted if find_spec(MODULES[way.runtime]) is not None]
        if export == folder:
            usable = [way for way in usable if way.runtime != "torch"]
        if not usable:
            return None
        best = min(usable, key=lambda way: way.relative_to(usable[0]))
        by_torch = next((way for way in usable if way.runtime == "torch"), None)
        if by_torch is None and export != folder:
            return None
        if by_torch is not None and best.relative_to(by_torch) > GAIN:
            best = by_torch
    except (ModelError, OSError, KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError):
        return None  # not measured, or the file is damaged: it is no more than a cache
    return best.runtime  # type: ignore[return-value]


def record(folder: Path, export: Path, ways: Sequence[Timed], more: Mapping[str, Any]) -> Path:
    """Keep a measurement, in place of an earlier one of the same model, export and processor.

    Returns:
        The file.

    Raises:
        OSError: it cannot be written.
    """
    file = record_file(folder, export)
    make_folder(file.parent)
    tree = {"version": _VERSION, "processor": _processor(), **more, "ways": [asdict(way) for way in ways]}
    content = (to_json(tree, indent=2) + "\n").encode()
    replace_durably(file, content, writer=str(os.getpid()))
    return file


def record_file(folder: Path, export: Path) -> Path:
    """The file with the measurement of a model and its export on this processor.

    Raises:
        ModelError: the export has no report, or a damaged one.
    """
    report = read_json(export / REPORT)
    model = report["source"]["digest"] if export == folder else digest_of(folder)
    facts = (model, json.dumps(report, sort_keys=True), _processor(), *sorted(cpu_flags()))
    name = hashlib.blake2b("\n".join(facts).encode(), digest_size=12).hexdigest()
    above = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return user_path(above) / "albertine" / "runtimes" / f"{name}.json"


def _processor() -> str:
    return f"{cpu_name()}, {usable_threads()} threads"
