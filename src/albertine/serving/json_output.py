"""JSON of responses."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson

GROUP = 64
"""Things that `in_parts` writes at a time."""


def as_json(found: Any) -> bytes:
    """UTF-8. Numbers of float32 arrays have as many digits as float32 needs."""
    return orjson.dumps(found, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)


def in_parts(found: Any) -> bytes:
    """As `as_json`, part by part: one call for millions of numbers keeps all other threads waiting."""
    if isinstance(found, dict):
        return b"{" + b",".join([as_json(name) + b":" + in_parts(x) for name, x in found.items()]) + b"}"
    if isinstance(found, list | np.ndarray) and len(found):
        parts = [as_json(found[i : i + GROUP])[1:-1] for i in range(0, len(found), GROUP)]
        return b"[" + b",".join(parts) + b"]"
    return as_json(found)
