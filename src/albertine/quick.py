"""torch, imported with the garbage collector at rest: what it makes of its modules stays, and looking through
all of it again and again takes an eighth of the second that the import takes."""

from __future__ import annotations

import gc

_collecting = gc.isenabled()
gc.disable()
try:
    import torch as torch
finally:
    if _collecting:
        gc.enable()
