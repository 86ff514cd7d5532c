"""Reading, writing and comparing the stored parts of the contract."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"
UPDATE = "python -m tests.contracts.update"


def stored(part: str) -> Any:
    """The stored contract of a part, as `data/PART.json` has it."""
    return json.loads((DATA / f"{part}.json").read_text(encoding="utf-8"))


def store(part: str, found: Any) -> None:
    """Replace the stored contract of a part."""
    text = json.dumps(found, indent=1, ensure_ascii=False) + "\n"
    (DATA / f"{part}.json").write_text(text, encoding="utf-8")


def plain(found: Any) -> Any:
    """The value as JSON would give it back: tuples become lists, keys become text."""
    return json.loads(json.dumps(found, ensure_ascii=False))


def differences(expected: Any, found: Any, *, tolerance: float = 0.0, path: str = "") -> Iterator[str]:
    """One line for each place at which two JSON values differ.

    Args:
        tolerance: relative, of numbers with a fraction; other values must be equal.
    """
    if isinstance(expected, dict) and isinstance(found, dict):
        for key in sorted(expected.keys() | found.keys()):
            where = f"{path}/{key}"
            if key not in found:
                yield f"{where} is gone; it was {_short(expected[key])}"
            elif key not in expected:
                yield f"{where} is new: {_short(found[key])}"
            else:
                yield from differences(expected[key], found[key], tolerance=tolerance, path=where)
    elif isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        for index, (one, other) in enumerate(zip(expected, found, strict=True)):
            yield from differences(one, other, tolerance=tolerance, path=f"{path}/{index}")
    elif isinstance(expected, float) and isinstance(found, float):
        if not math.isclose(expected, found, rel_tol=tolerance):
            yield f"{path} was {expected!r} and is {found!r}"
    elif expected != found:
        yield f"{path} was {_short(expected)} and is {_short(found)}"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) < 200 else f"{text[:200]}…"


def shape_of(value: Any) -> Any:
    """The shape of a JSON value: types in place of values, and of a list the shape of all its elements."""
    if isinstance(value, dict):
        return {key: shape_of(inner) for key, inner in sorted(value.items())}
    if isinstance(value, list):
        shapes = [shape_of(inner) for inner in value]
        if shapes and all(isinstance(shape, dict) for shape in shapes):
            keys = sorted({key for shape in shapes for key in shape})
            return [{key: _any_of([shape[key] for shape in shapes if key in shape]) for key in keys}]
        return [_any_of(shapes)] if shapes else []
    if value is None or isinstance(value, bool):
        return "null" if value is None else "boolean"
    return "number" if isinstance(value, int | float) else "text"


def _any_of(shapes: list[Any]) -> Any:
    different = sorted({json.dumps(shape, sort_keys=True) for shape in shapes})
    if len(different) == 1:
        return shapes[0]
    return {"any of": [json.loads(text) for text in different]}
