"""The machine a benchmark ran on, and where its result is written."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain, count
from pathlib import Path
from typing import Any

from albertine.core.files import os_errors_as_run_errors, read_json, write_json
from albertine.core.processors import usable_cores

RESULTS = Path("benchmarks", "results")
"""The folder of results, relative to the root of the repository."""

ALIKE = ("preset", "threads")
"""Settings that two results must share to be compared."""
SAME_RUN = (*ALIKE, "steps", "minutes", "corpus", "first_seed")
"""And that the later one takes the place of the earlier of the same day."""

PACKAGES = (
    *("albertine", "torch", "numpy", "tokenizers", "sentencepiece", "safetensors"),
    *("transformers", "datasets", "accelerate", "onnxruntime", "openvino", "nncf", "jieba"),
)


def _cpu() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or platform.machine()
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found.group(1).strip() if found else platform.machine()


def _gpu() -> str | None:
    import torch

    return str(torch.cuda.get_device_name(0)) if torch.cuda.is_available() else None


def _vectors() -> str:
    """The widest instructions of the processor that matrix products profit from."""
    try:
        flags = set(Path("/proc/cpuinfo").read_text().split())
    except OSError:
        return platform.machine()
    for flag, name in (("amx_tile", "amx"), ("avx512f", "avx512"), ("avx2", "avx2"), ("asimd", "neon")):
        if flag in flags:
            return name
    return platform.machine()


def hardware() -> str:
    """Folder name of this kind of machine: `2-core-amd-epyc-avx2`, or the name of the GPU."""
    if gpu := _gpu():
        name = gpu
    else:
        words = re.sub(r"\(.*?\)|@.*|\bCPU\b|\b\d+-Core\b|\bProcessor\b", " ", _cpu()).split()
        # the model number is left out: clouds hand out several under one name
        kind = " ".join(word for word in words if not any(c.isdigit() for c in word)) or "cpu"
        name = f"{usable_cores()}-core-{kind}-{_vectors()}"
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def describe() -> dict[str, Any]:
    """Hardware, versions and load, as every result file states them."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "hardware": hardware(),
        "cpu": _cpu(),
        "cores": usable_cores(),
        "memory_gib": round(memory / 2**30, 1),
        "gpu": _gpu(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "versions": versions,
        "load_average": [round(x, 2) for x in os.getloadavg()],
    }


def save_result(name: str, result: dict[str, Any], results: Path = RESULTS) -> Path:
    """Write `result` as `<results>/<hardware>/<date>-<name>.json`; returns its path. It takes the place of a
    result of the same day with the same settings; beside another it has a number behind its date."""
    folder = results / hardware()
    dates = (f"{datetime.now(UTC):%Y-%m-%d}{number}" for number in chain([""], map(".{}".format, count(2))))
    paths = (folder / f"{date}-{name}.json" for date in dates)
    path = next(path for path in paths if not path.exists() or alike(read_json(path), result, SAME_RUN))
    with os_errors_as_run_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        write_json(path, result)
    return path


def saved_results(folder: Path, name: str) -> list[Path]:
    """The results of that name in the folder of a kind of hardware, the newest first."""
    pattern = re.compile(rf"(\d{{4}}-\d\d-\d\d)(?:\.(\d+))?-{re.escape(name)}\.json")
    found = ((pattern.fullmatch(path.name), path) for path in folder.glob("*.json"))
    dated = [(match[1], int(match[2] or 1), path) for match, path in found if match]
    return [path for *_, path in sorted(dated, reverse=True)]


def alike(one: Mapping[str, Any], other: Mapping[str, Any], keys: Sequence[str] = ALIKE) -> bool:
    """Whether two results have the same preset and threads, or the same of other settings."""
    return all(one.get(key) == other.get(key) for key in keys)


def newest(folder: Path, name: str) -> Path | None:
    """The newest result of that name in the folder of a kind of hardware."""
    return next(iter(saved_results(folder, name)), None)
