"""What other programs compute of exported folders, beside what Albertine computes of the model.

    python -m benchmarks.foreign_runtimes --llama PYTHON --onnx PYTHON --save

Small random models of every architecture that llama.cpp has, of every head that it has; and for the ONNX
backend of sentence-transformers and for optimum-onnx those that they have classes for. PYTHON is one that has
llama-cpp-python, or sentence-transformers and optimum-onnx, which need an environment of their own; one that
has not is passed over with a line. Libraries of llama.cpp that were built apart: `--llama-libraries FOLDER`.

llama.cpp's GELU on processors is a table of half-precision numbers (built without GGML_GELU_FP16 it is not),
so its numbers agree to about 1e-3.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

import albertine
from albertine import Predictor
from albertine.bench.machine import describe, save_result
from albertine.export.export_model import export
from albertine.interop.huggingface.folders import save_model
from tests.export import saved

HERE = Path(__file__).with_name("foreign")
TEXTS = ["the old man", "said a b c, and the man unb north 北京!", "x", "the man said x.", "北京 unb"]
WIDE = {"embedding_size": 24}
LLAMA: dict[str, dict[str, Any]] = {
    "bert": WIDE,
    "jina-bert-v3": {**WIDE, "positions": "rotary", "rotary_base": 700.0},
    "modern-bert": {
        **{"positions": "rotary", "norm": "pre", "feed_forward": "gated"},
        **{"biases": False, "type_vocab_size": 0},
    },
}
"""By llama.cpp's name the changes that make an encoder of ours of it."""
Made = tuple[Path, list[Any]]


@dataclass(frozen=True)
class Found:
    """One comparison: of what, the greatest difference, and whether texts were cut alike."""

    runtime: str
    model: str
    answers: str
    difference: float
    same_tokens: bool | None = None


def states(folder: Path) -> list[Any]:
    """Of each text the last hidden states of its tokens, all of the first segment."""
    model, tokenizer = albertine.load(folder), albertine.load_tokenizer(folder)
    with torch.no_grad():
        return [
            model(torch.tensor(tokenizer([text])["input_ids"])).last_hidden_state[0].numpy() for text in TEXTS
        ]


def chances(folder: Path) -> list[Any]:
    """Of each text the chances of its classes."""
    predictions = Predictor(folder, precision="float32").classify(TEXTS)
    return [np.array([one[name] for name in ("x", "y", "z")]) for one in predictions]


def vectors(folder: Path) -> list[Any]:
    """Of each text its vector, as it was tuned to be, but not of length 1."""
    return list(Predictor(folder, precision="float32").embed(TEXTS, normalize=False))


def masked(folder: Path) -> list[Any]:
    """Of each text the logits of its tokens."""
    model, tokenizer = albertine.load(folder), albertine.load_tokenizer(folder)
    found = []
    with torch.no_grad(), model.encoder.forward_pass():
        for text in TEXTS:
            out = model(torch.tensor(tokenizer([text])["input_ids"]))
            found.append(model.mlm_logits(out.last_hidden_state[0]).numpy())
    return found


def made(folder: Path, kind: str, answers: str, to: str) -> Made:
    """An exported folder and our own answers."""
    own, heads = folder / "source", {"features": states, "fill-mask": masked}
    changes = LLAMA.get(kind, {})
    if answers == "classify":
        saved.classifier(own, **changes)
    elif answers in heads:
        save_model(saved.model(**changes), saved.tokenizer(), own)
    else:
        saved.embedder(own, answers.split()[-1], **changes)  # type: ignore[arg-type]
    head = answers if answers in heads else "task"
    out = export(own, folder / "out", [to], head=head).folder  # type: ignore[arg-type]
    ours: Callable[[Path], list[Any]] = heads.get(answers, vectors)
    return out, (chances if answers == "classify" else ours)(own)


def answers_of(
    python: str, driver: str, questions: list[dict[str, Any]], libraries: str | None = None
) -> Any:
    """The answers of a driver in another Python."""
    finished = subprocess.run(
        [python, HERE / driver],
        input=json.dumps(questions),
        capture_output=True,
        text=True,
        env=_environment(libraries),
    )
    if finished.returncode:
        raise SystemExit(f"{driver}: {finished.stderr.strip()[-2000:]}")
    return json.loads(finished.stdout)


def lacking(python: str, modules: str, libraries: str | None = None) -> str | None:
    """Why a Python cannot run the comparison, in a line; None if it can."""
    try:
        tried = _run(python, f"import {modules}", libraries)
    except OSError as error:
        return f"{python}: {error.strerror}"
    return f"{python} has no {modules}: {tried.stderr.strip().splitlines()[-1]}" if tried.returncode else None


def versions(python: str, *modules: str, libraries: str | None = None) -> dict[str, str]:
    """What is installed in another Python."""
    code = "; ".join(f"import {name}; print({name}.__version__)" for name in modules)
    return dict(zip(modules, _run(python, code, libraries).stdout.split(), strict=True))


def _run(python: str, code: str, libraries: str | None) -> subprocess.CompletedProcess[str]:
    command = [python, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, env=_environment(libraries))


def _environment(libraries: str | None) -> dict[str, str]:
    here = {"LLAMA_CPP_LIB_PATH": libraries} if libraries else {}
    return {**os.environ, "HF_HUB_OFFLINE": "1", **here}


def difference(theirs: list[Any], ours: list[Any], answers: str) -> float:
    """The greatest of all numbers; of scores of classes that of the chances. Infinite where shapes differ."""
    worst = 0.0
    for one, other in zip(theirs, ours, strict=True):
        found = np.asarray(one, np.float64)
        if found.shape != other.shape:
            return float("inf")
        if answers == "classify":
            found = np.exp(found - found.max()) / np.exp(found - found.max()).sum()
        worst = max(worst, float(np.abs(found - other).max()))
    return worst


def of_llama(python: str, folder: Path, libraries: str | None) -> list[Found]:
    """Every architecture and head that llama.cpp has."""
    every = [(kind, answers) for kind in LLAMA for answers in ("features", "embed mean", "embed cls")]
    cases = [*every, ("bert", "classify")]
    all_made = [made(folder / f"llama {i}", *case, "gguf") for i, case in enumerate(cases)]
    questions = [
        {"file": str(out / "model.gguf"), "texts": TEXTS, "each": answers == "features"}
        for (_, answers), (out, _) in zip(cases, all_made, strict=True)
    ]
    tokenizer = saved.tokenizer()
    ids = [tokenizer([text])["input_ids"][0] for text in TEXTS]
    found = []
    for (kind, answers), (_, ours), answer in zip(
        cases, all_made, answers_of(python, "run_llama.py", questions, libraries), strict=True
    ):
        theirs, same = [numbers for _, numbers in answer], [cut for cut, _ in answer] == ids
        found.append(Found("llama.cpp", kind, answers, difference(theirs, ours, answers), same))
    return found


CLASSES = {
    "embed mean": "SentenceTransformer",
    "embed cls": "SentenceTransformer",
    "features": "ORTModelForFeatureExtraction",
    "classify": "ORTModelForSequenceClassification",
    "fill-mask": "ORTModelForMaskedLM",
}


def of_onnx(python: str, folder: Path) -> list[Found]:
    """An ALBERT with every head that they have a class for."""
    all_made = [made(folder / f"onnx {i}", "albert", answers, "onnx") for i, answers in enumerate(CLASSES)]
    questions = [
        {"folder": str(out), "texts": TEXTS, "class": name}
        for name, (out, _) in zip(CLASSES.values(), all_made, strict=True)
    ]
    outputs = answers_of(python, "run_onnx.py", questions)
    return [
        Found(name, "albert", answers, difference(theirs, ours, answers))
        for (answers, name), (_, ours), theirs in zip(CLASSES.items(), all_made, outputs, strict=True)
    ]


def compared(given: argparse.Namespace) -> tuple[list[Found], dict[str, str]]:
    """All comparisons that can run here with their versions; a line for those that cannot."""
    found: list[Found] = []
    installed: dict[str, str] = {}
    with TemporaryDirectory() as temporary:
        if why := lacking(given.llama, "llama_cpp", given.llama_libraries):
            print(f"llama.cpp: passed over. {why}")
        else:
            found += of_llama(given.llama, Path(temporary), given.llama_libraries)
            installed |= versions(given.llama, "llama_cpp", libraries=given.llama_libraries)
        if why := lacking(given.onnx, "sentence_transformers, optimum.onnxruntime"):
            print(f"sentence-transformers and optimum-onnx: passed over. {why}")
        else:
            found += of_onnx(given.onnx, Path(temporary))
            installed |= versions(given.onnx, "sentence_transformers", "optimum.version", "onnxruntime")
    return found, installed


def main() -> None:
    """Compare, print, and with --save keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--llama", default=sys.executable, metavar="PYTHON", help="one with llama-cpp-python")
    parser.add_argument("--llama-libraries", metavar="FOLDER", help="of libllama.so, where built apart")
    parser.add_argument(
        "--onnx",
        default=sys.executable,
        metavar="PYTHON",
        help="one with sentence-transformers, optimum-onnx",
    )
    parser.add_argument("--note", default="", help="kept with the result, such as how llama.cpp was built")
    parser.add_argument("--save", action="store_true", help="keep the result in benchmarks/results")
    given = parser.parse_args()
    found, installed = compared(given)
    for one in found:
        cut = {None: "", True: ", same tokens", False: ", OTHER TOKENS"}[one.same_tokens]
        print(f"{one.runtime:34} {one.model:13} {one.answers:11} {one.difference:.1e}{cut}")
    if given.save and found:
        rows = [vars(one) for one in found]
        record = {"machine": describe(), "versions": installed, "note": given.note, "compared": rows}
        print(save_result("foreign-runtimes", record))


if __name__ == "__main__":
    main()
