"""`torch.inference_mode` as a decorator that imports torch when the function is called, so that the module of
the function can be imported where torch is not installed."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])


def without_gradients(function: F) -> F:
    """The function, under `torch.inference_mode` whenever it is called."""

    @wraps(function)
    def computed(*args: Any, **options: Any) -> Any:
        import torch

        with torch.inference_mode():
            return function(*args, **options)

    return cast(F, computed)
