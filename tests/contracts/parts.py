"""The parts of the contract."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.contracts import folders, http, numbers, python_names, settings_keys, verbs
from tests.contracts.products import Products

ALONE: dict[str, Callable[[], Any]] = {
    "verbs": verbs.contract,
    "settings_keys": settings_keys.contract,
}
"""Parts for which importing the package is enough."""
OF_PRODUCTS: dict[str, Callable[[Products], Any]] = {
    "python_names": python_names.contract,
    "folders": folders.contract,
    "http": http.contract,
    "numbers": numbers.contract,
}
"""Parts that look at what the package wrote and returned."""
