"""The report of an exported folder, as text; does not import torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from albertine.errors import ModelError


def describe_export(report: Mapping[str, Any], where: object) -> dict[str, Any]:
    """The content of an export.json as facts for a person.

    Raises:
        ModelError: it is damaged.
    """
    try:
        found: dict[str, Any] = {
            "answers": report["answers"],
            "source": f"{report['source']['name']} ({report['source']['digest'][:12]})",
        }
        for name, file in report["files"].items():
            found[name] = ", ".join(_of_file(file))
        found["made with"] = ", ".join(f"{name} {number}" for name, number in report["versions"].items())
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ModelError(
            f"is no report of an export ({error!r:.80})",
            where=where,
            remedy="Export the model again: albertine export MODEL OUT --overwrite",
        ) from error
    return found


def _of_file(file: Mapping[str, Any]) -> list[str]:
    words = [str(file["precision"])]
    if "layout" in file:
        words.append(f"{file['layout']} input")
    if "opset" in file:
        words.append(f"opset {file['opset']}")
    if "bytes" in file:
        words.append(f"{file['bytes']:,} bytes")
    if "products" in file:
        words.append(f"{file['quantised']} of {file['products']} products in int8")
    difference, cosine = float(file["greatest_difference"]), float(file["least_cosine"])
    words.append(
        f"greatest difference {difference:.1e} and least cosine {cosine:.6f} "
        f"over {len(file['shapes'])} shapes"
    )
    return words
