"""torch, imported with the garbage collector at rest: what it makes of its modules stays, and looking through
all of it again and again takes an eighth of the second that the import takes. In a process of the command
line it is not looked through later either, which took half a second of a short one."""

from __future__ import annotations

import gc
import sys

_collecting = gc.isenabled()
gc.disable()
try:
    import torch as torch
finally:
    # Not in a process of others: what is frozen and given up afterwards is never freed.
    if "albertine.cli.app" in sys.modules:
        gc.freeze()
    if _collecting:
        gc.enable()
