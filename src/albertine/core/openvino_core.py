"""OpenVINO's `Core`, one for the whole process."""

from __future__ import annotations

from threading import Lock
from typing import Any

_LOCK = Lock()
_CORE: Any = None


def openvino_core() -> Any:
    """The `openvino.Core` of this process, made by the first call. OpenVINO must be installed.

    On processors with AMX its CPU plugin gives the thread that loads it another stack for signal handlers,
    and frees that stack with the last `Core` that uses it. If that happens in another thread, or after
    another `Core` was made, the next signal ends the process by SIGSEGV. So this one is kept.
    """
    global _CORE
    with _LOCK:
        if _CORE is None:
            import openvino

            core = openvino.Core()
            core.get_versions("CPU")  # loads the plugin
            _CORE = core
        return _CORE
