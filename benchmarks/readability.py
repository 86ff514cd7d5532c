"""What a reader has to open to follow one forward pass: files, their lines, and our functions that it enters.

python -m benchmarks.readability            # the plain backend, which is the readable truth
python -m benchmarks.readability onednn     # what a processor computes
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import torch

import albertine
from albertine.core.batch import pack
from albertine.model.config import EncoderConfig
from albertine.model.model import Model
from albertine.model.sharing import SharingPlan

PACKAGE = Path(albertine.__file__).parent


def entered(backend: str) -> set[tuple[str, str]]:
    """(file, function) of ours that one pretraining forward pass with gradients enters."""
    config = EncoderConfig(
        vocab_size=100,
        embedding_size=8,
        hidden_size=16,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
        plan=SharingPlan.shared(3),
    )
    model, batch, rows = Model(config, {"mlm", "sop"}), pack([[1, 2, 3, 4], [5, 6, 7]]), torch.tensor([1, 5])
    model.encoder.backend = backend
    model.pretraining_forward(batch, rows)  # imports and proofs happen once
    found: set[tuple[str, str]] = set()

    def look(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(PACKAGE)):
            found.add((str(Path(code.co_filename).relative_to(PACKAGE)), code.co_qualname))

    sys.setprofile(look)
    try:
        model.pretraining_forward(batch, rows)
    finally:
        sys.setprofile(None)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("backend", nargs="?", default="plain", help="default plain")
    found = entered(parser.parse_args().backend)
    files = sorted({file for file, _ in found})
    lines = {file: (PACKAGE / file).read_text(encoding="utf-8").count("\n") for file in files}
    for file in files:
        names = ", ".join(sorted(name for where, name in found if where == file))
        print(f"{lines[file]:5}  {file:28} {names}")
    print(f"{sum(lines.values()):5}  lines in {len(files)} files, {len(found)} functions of ours")


if __name__ == "__main__":
    main()
