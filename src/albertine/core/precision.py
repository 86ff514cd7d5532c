"""The only place that decides in which number format things are computed.

Parameters are always float32 (the master weights). A forward pass casts the weights it needs, once per pass,
to the compute format; LayerNorm statistics, softmax of the loss and the loss itself stay in float32.
Inference can also multiply 8-bit integers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple, TypeVar, cast

import torch
from torch import Tensor

from albertine.core.devices import fast_bfloat16
from albertine.core.number_formats import InferencePrecision as InferencePrecision
from albertine.core.number_formats import Precision as Precision
from albertine.errors import SettingsError

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class ComputeFormat(NamedTuple):
    """How products are computed.

    Attributes:
        dtype: of activations, and of weights unless these are integers.
        int8: whether the blocks multiply 8-bit integers; for inference alone.
    """

    dtype: torch.dtype
    int8: bool = False


def compute_format(precision: InferencePrecision, weight: Tensor, training: bool = False) -> ComputeFormat:
    """What a precision setting means for a model with such weights.

    `auto` takes bfloat16 where hardware has it, and so do the activations of `int8`. Under `torch.autocast`
    `auto` and `float32` take its format, and so they take the format of weights that are not float32.

    Raises:
        SettingsError: an unknown setting, or bfloat16 on a GPU that has none.
    """
    if precision not in ("auto", "int8", *_DTYPES):
        raise SettingsError(f"unknown precision `{precision}`", remedy="Use auto, float32, bfloat16 or int8")
    if precision == "int8" and training:
        raise SettingsError(
            "int8 is for inference", remedy="Call model.eval(), and the model under torch.inference_mode()"
        )
    asked = getattr(_autocast, weight.device.type, None)
    if precision in ("auto", "float32") and (asked is not None or weight.dtype != torch.float32):
        form = ComputeFormat(weight.dtype if asked is None else asked)
    elif precision in ("auto", "int8"):
        form = ComputeFormat(
            torch.bfloat16 if fast_bfloat16(weight.device) else torch.float32, precision == "int8"
        )
    else:
        form = ComputeFormat(_DTYPES[precision])
    # Such a card emulates single products, and the kernels of attention fail there in words of their own.
    if form.dtype == torch.bfloat16 and weight.device.type == "cuda" and not fast_bfloat16(weight.device):
        name = torch.cuda.get_device_name(weight.device)
        raise SettingsError(
            f"bfloat16 was asked for, and {name} has none (NVIDIA cards have it since Ampere, 2020)",
            remedy="Use precision auto or float32, without torch.autocast to bfloat16",
        )
    return form


_autocast = threading.local()
"""By kind of device, the format that `torch.autocast` asked for around the method under way."""

M = TypeVar("M", bound=Callable[..., Any])


def without_autocast(method: M) -> M:
    """Compute a method as this module decides: `torch.autocast` around it is a wish for a format
    (`compute_format`) and changes no single operation inside."""

    @wraps(method)
    def computed(*args: Any, **options: Any) -> Any:
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                before = getattr(_autocast, kind, None)
                setattr(_autocast, kind, torch.get_autocast_dtype(kind))
                try:
                    with torch.autocast(kind, enabled=False):
                        return computed(*args, **options)
                finally:
                    setattr(_autocast, kind, before)
        return method(*args, **options)

    return cast(M, computed)
