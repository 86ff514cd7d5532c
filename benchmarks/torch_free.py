"""An environment without torch: how large it is, whether it answers the same, and how soon.

    python -m benchmarks.torch_free --save

Makes a new environment in a temporary folder (`pip install .[onnx]`) and runs in it, in processes of their
own, exports of small models of every family and of the released English model (words under a mask, vectors).
This environment, with torch, runs the model folders. The start is that of a new process up to its first
answer, the two in turns.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from albertine.bench.machine import describe, save_result
from albertine.core.released import released_folder
from albertine.export.export_model import export
from tests.inference.exports import QUESTIONS, TEXTS, exported
from tests.inference.torch_free_driver import answer_of

ROOT = Path(__file__).resolve().parents[1]
MODEL = "albertine-mini-en"
OF_PYTHON = ("pip", "setuptools", "pkg_resources", "_distutils_hack", "__pycache__")
MASKED = ["He played for the national football [MASK].", "The [MASK] of France is [MASK]."]
START = "import sys; from albertine import Predictor; Predictor(sys.argv[1]).fill_mask(sys.argv[2])"
SENTENCES = ["A cat sat on the mat.", "There was a cat on a mat.", "Prices fell sharply.", "why"]


def environment(folder: Path) -> Path:
    """A new environment with `albertine[onnx]`, and its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    quiet = ["--quiet", "--disable-pip-version-check", "--constraint", str(ROOT / "constraints.txt")]
    subprocess.run([python, "-m", "pip", "install", *quiet, f"{ROOT}[onnx]"], check=True)
    return python


def sizes(python: Path, idle: set[str]) -> dict[str, Any]:
    """Megabytes (10^6 bytes) of the packages' folder and of each package: what pip unpacks, and beside it the
    bytecode that pip compiles. Without pip and setuptools, which came with Python.

    Args:
        python: the environment's interpreter.
        idle: packages that are listed apart, because nothing imports them.
    """
    folder = _packages(python)
    files: Counter[str] = Counter()
    bytecode: Counter[str] = Counter()
    for path in folder.rglob("*"):
        package = path.relative_to(folder).parts[0]
        if path.is_file() and not package.startswith(OF_PYTHON):
            kind = bytecode if path.parent.name == "__pycache__" else files
            kind[package.partition("-")[0].removesuffix(".libs")] += path.stat().st_size
    packages = {name: (files[name] / 1e6, bytecode[name] / 1e6) for name in files | bytecode}
    return {
        "without caches": files.total() / 1e6,
        "with caches": (files.total() + bytecode.total()) / 1e6,
        "packages": dict(sorted(packages.items(), key=lambda item: -sum(item[1]))),
        "never imported": sorted(packages.keys() & idle),
    }


def never_imported(python: Path, graph: Path) -> set[str]:
    """The packages of the environment that a process does not import up to its first answer."""
    code = START + "; print(*{name.partition('.')[0] for name in sys.modules})"
    command = [python, "-c", code, graph, MASKED[0]]
    finished = subprocess.run(command, capture_output=True, text=True, cwd="/", env=_own(), check=True)
    imported = set(finished.stdout.split())
    found = {
        path.name.removesuffix(".py") for path in _packages(python).iterdir() if path.suffix in ("", ".py")
    }
    return found - imported


def _packages(python: Path) -> Path:
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    finished = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    return Path(finished.stdout.strip())


def difference(one: Any, two: Any) -> float:
    """The greatest difference of two answers' numbers; infinite where they differ in anything else."""
    if isinstance(one, dict) and isinstance(two, dict) and one.keys() == two.keys():
        return max((difference(one[key], two[key]) for key in one), default=0.0)
    if isinstance(one, list) and isinstance(two, list) and len(one) == len(two):
        return max((difference(a, b) for a, b in zip(one, two, strict=True)), default=0.0)
    if isinstance(one, float) and isinstance(two, float):
        return abs(one - two)
    return 0.0 if one == two else float("inf")


def models(folder: Path) -> dict[str, tuple[Path, Path, list[tuple[str, list[Any]]]]]:
    """By name a model folder, its export, and the calls of both."""
    made = {name: (*exported(name, folder), own) for name, own in QUESTIONS.items()}
    released = released_folder(MODEL)
    words, vectors = (
        export(released, folder / f"{MODEL} {head}", head=head).folder for head in ("fill-mask", "embed")
    )
    questions = [("fill_mask", [text]) for text in MASKED]
    made[f"{MODEL}, words"] = (released, words, questions)
    made[f"{MODEL}, vectors"] = (released, vectors, [("embed", [SENTENCES]), ("embed", [TEXTS])])
    return made


def differences(python: Path, folder: Path, made: dict[str, Any]) -> dict[str, float]:
    """By name how far the answers without torch are from those with it."""
    file, found = folder / "questions.json", {}
    for name, (source, graph, own) in made.items():
        questions = [{"method": method, "with": given} for method, given in own]
        file.write_text(json.dumps({str(graph): questions}), encoding="utf-8")
        command = [python, ROOT / "tests" / "inference" / "torch_free_driver.py", file]
        finished = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=_own(), check=True)
        wanted = [json.loads(json.dumps(answer_of(str(source), one))) for one in questions]
        found[name] = difference(wanted, json.loads(finished.stdout)[0])
    return found


def starts(python: Path, source: Path, graph: Path, times: int) -> dict[str, float]:
    """Seconds from the start of a process to its first answer: the median."""
    found: dict[str, list[float]] = {"torch": [], "no torch": []}
    programs = {"torch": (sys.executable, source), "no torch": (python, graph)}
    for _ in range(times):
        for name, (program, model) in programs.items():
            begun = time.perf_counter()
            subprocess.run([program, "-c", START, model, MASKED[0]], check=True, env=_own(), cwd="/")
            found[name].append(time.perf_counter() - begun)
    return {name: statistics.median(seconds) for name, seconds in found.items()}


def _own() -> dict[str, str]:
    """The variables of this process without a path to this source: the environments have it installed."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def main() -> None:
    """Measure, print, and with --save keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--times", type=int, default=5, help="starts of each kind")
    parser.add_argument("--save", action="store_true", help="keep the result in benchmarks/results")
    given = parser.parse_args()
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        python = environment(folder / "environment")
        made = models(folder)
        source, graph, _ = made[f"{MODEL}, words"]
        found = {
            "machine": describe(),
            "megabytes": sizes(python, never_imported(python, graph)),
            "greatest_difference": differences(python, folder, made),
            "seconds_to_first_answer": starts(python, source, graph, given.times),
        }
    print(json.dumps({name: value for name, value in found.items() if name != "machine"}, indent=2))
    if given.save:
        print(save_result("torch-free", found))


if __name__ == "__main__":
    main()
