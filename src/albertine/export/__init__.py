"""Models for other runtimes and servers.

`albertine.export(…)` calls the function of `albertine.api`: this package stands for it, since a package that
is imported hides a function of the same name.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    """A module that is called as `albertine.api.export` is."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        from albertine.api import export

        return export(*args, **options)


sys.modules[__name__].__class__ = _Callable
