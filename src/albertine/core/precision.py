"""The compute format (dtype, int8 or not) of a forward pass; decided here only.

Parameters are always float32 (master weights). A forward pass casts the weights it needs, once per pass, to
the compute dtype; LayerNorm statistics, the softmax of the loss and the loss stay in float32. Inference can
also use int8 matrix products.
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
    """Number format of matrix products.

    Attributes:
        dtype: of activations, and of weights unless `int8`.
        int8: whether the layers use int8 weights and products; inference only.
    """

    dtype: torch.dtype
    int8: bool = False


def compute_format(precision: InferencePrecision, weight: Tensor, training: bool = False) -> ComputeFormat:
    """Resolve a precision setting for a model with such weights.

    `auto`, and the activations of `int8`, use bfloat16 where the hardware has it. Under `torch.autocast`,
    `auto` and `float32` use its dtype; with weights that are not float32, the dtype of the weights.

    Raises:
        SettingsError: an unknown setting, int8 in training, or bfloat16 on a GPU without it.
    """
    if precision not in ("auto", "int8", *_DTYPES):
        raise SettingsError(f"unknown precision `{precision}`", remedy="Use auto, float32, bfloat16 or int8")
    if precision == "int8" and training:
        raise SettingsError(
            "int8 is for inference", remedy="Call model.eval(), and the model under torch.inference_mode()"
        )
    autocast = getattr(_autocast_dtypes, weight.device.type, None)
    if precision in ("auto", "float32") and (autocast is not None or weight.dtype != torch.float32):
        form = ComputeFormat(weight.dtype if autocast is None else autocast)
    elif precision in ("auto", "int8"):
        form = ComputeFormat(
            torch.bfloat16 if fast_bfloat16(weight.device) else torch.float32, precision == "int8"
        )
    else:
        form = ComputeFormat(_DTYPES[precision])
    # Such a GPU emulates matrix products, but attention kernels fail on it with unclear errors.
    if form.dtype == torch.bfloat16 and weight.device.type == "cuda" and not fast_bfloat16(weight.device):
        name = torch.cuda.get_device_name(weight.device)
        raise SettingsError(
            f"bfloat16 is not supported by {name} (NVIDIA GPUs have it since Ampere, 2020)",
            remedy="Use precision auto or float32, without torch.autocast to bfloat16",
        )
    return form


_autocast_dtypes = threading.local()
"""By device type, the dtype of the `torch.autocast` that `without_autocast` has disabled in this thread."""

M = TypeVar("M", bound=Callable[..., Any])


def without_autocast(method: M) -> M:
    """Decorate a method to disable `torch.autocast` inside it; `compute_format` reads its dtype instead, so
    that it applies to the whole pass and not to single operations."""

    @wraps(method)
    def computed(*args: Any, **options: Any) -> Any:
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                before = getattr(_autocast_dtypes, kind, None)
                setattr(_autocast_dtypes, kind, torch.get_autocast_dtype(kind))
                try:
                    with torch.autocast(kind, enabled=False):
                        return computed(*args, **options)
                finally:
                    setattr(_autocast_dtypes, kind, before)
        return method(*args, **options)

    return cast(M, computed)
