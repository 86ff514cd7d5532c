"""Names of the precision settings, importable without torch; `core.precision` resolves them."""

from __future__ import annotations

from typing import Literal

Precision = Literal["auto", "float32", "bfloat16"]
InferencePrecision = Literal[Precision, "int8"]
