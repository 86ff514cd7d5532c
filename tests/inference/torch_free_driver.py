"""Runs an exported folder in a process that cannot import torch; run as a program by `test_torch_free`."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any


def answer_of(folder: str, question: dict[str, Any]) -> Any:
    """The answer of a folder to a question of `test_torch_free`: the name of a method, and its arguments."""
    from albertine import Predictor

    predictor = Predictor(folder, precision="float32", batch_tokens=question.get("batch_tokens"))
    if question["method"] == "predict":
        return list(predictor.predict(*question["with"], top=3))
    if question["method"] == "likely_spans":
        return [[list(one.spans.items()), one.no_answer] for one in predictor.likely_spans(*question["with"])]
    found = getattr(predictor, question["method"])(*question["with"])
    if question["method"] == "fill_mask":
        return [[asdict(guess) for guess in guesses] for guesses in found]
    return found.tolist() if hasattr(found, "tolist") else found


if __name__ == "__main__":
    sys.modules["torch"] = None  # type: ignore[assignment]  # importing it raises ModuleNotFoundError
    questions = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    answers = [[answer_of(folder, one) for one in own] for folder, own in questions.items()]
    assert "torch" not in {name for name, module in sys.modules.items() if module is not None}
    print(json.dumps(answers))
