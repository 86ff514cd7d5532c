"""The names of the number formats that a person may ask for; what they mean is `precision`'s."""

from __future__ import annotations

from typing import Literal

Precision = Literal["auto", "float32", "bfloat16"]
InferencePrecision = Literal[Precision, "int8"]
