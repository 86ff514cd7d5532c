"""Names of precision and runtime settings, importable without torch; `core.precision` resolves them."""

from __future__ import annotations

from typing import Literal

Precision = Literal["auto", "float32", "bfloat16"]
InferencePrecision = Literal[Precision, "int8"]
Runtime = Literal["auto", "torch", "onnx", "openvino"]
"""What computes a model (`interop.runtimes`)."""
