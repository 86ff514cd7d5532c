"""How long a cold process takes to help, and to give its first answer; and how much memory."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from albertine.bench.interleaved import PATIENCE, Contest, Log, compete
from albertine.bench.process import call, run
from albertine.interop.huggingface.folders import save_model
from albertine.model.model import Model
from albertine.model.presets import preset
from albertine.tokenizers.load import load_tokenizer

TEXT = "今天天[MASK]很好。"
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
PIPELINE = "from transformers import pipeline; pipeline('fill-mask', model={!r})({!r})"


def measure(*, rounds: int, threads: int, log: Log = lambda text: None) -> tuple[Contest, dict[str, float]]:
    """Time whole processes in interleaved rounds. The model is ALBERT tiny with random weights and a
    vocabulary of Chinese characters.

    Returns:
        The times, and the most memory that each process held, in megabytes.

    Raises:
        RunError: a command fails.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "tiny"
        _model(folder)
        ours = [sys.executable, "-m", "albertine"]
        commands = {
            "albertine --help": [*ours, "--help"],
            "albertine predict fill-mask": [*ours, "predict", "fill-mask", str(folder), TEXT],
        }
        kept = list(commands)
        if find_spec("transformers") is not None:
            theirs = PIPELINE.format(str(folder), TEXT)
            commands["transformers pipeline fill-mask"] = [sys.executable, "-c", theirs]
        ways = {name: lambda command=command: call(command) for name, command in commands.items()}  # type: ignore[misc]
        contest = compete(ways, rounds, threads, log, patience=PATIENCE, kept=kept)
        return contest, {name: run(commands[name])[1] for name in contest.times}


def as_dict(contest: Contest, peaks: Mapping[str, float]) -> dict[str, Any]:
    """As JSON data."""
    return {**contest.as_dict(), "peak_mb": peaks}


def _model(folder: Path) -> None:
    config = preset("albert-tiny-zh")
    pieces = [*SPECIAL, *(chr(0x4E00 + i) for i in range(config.vocab_size - len(SPECIAL) - 1)), "。"]
    vocabulary = folder.parent / "vocab.txt"
    vocabulary.write_text("\n".join(pieces) + "\n", encoding="utf-8")
    save_model(Model(config, ("mlm", "sop")), load_tokenizer(vocabulary), folder)
