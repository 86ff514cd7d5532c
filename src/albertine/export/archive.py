"""A torch.export archive: the graph and its weights in one .pt2, which torch alone loads and runs.

    program = torch.export.load("torch/model.pt2").module()
    program(input_ids, attention_mask, token_type_ids)

Batch and length are open, or the sequences and tokens of a packed batch. The verification runs in another
process, which imports torch alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from albertine.errors import RunError
from albertine.export.formats import ExportedFile, ExportOptions
from albertine.export.graph import Graph, PackedGraph, described, example_of, graphs_of, open_axes
from albertine.export.source_model import Opened
from albertine.export.verify import Arrays

NEEDS = ("torch",)
EXTRA = "export"
OPTIONS = frozenset({"packed"})
FOLDER = "torch"

_READER = """
import os, sys
sys.path += sys.argv[3].split(os.pathsep)
import numpy, torch
program = torch.export.load(sys.argv[1]).module()
names = sys.argv[2].split(",")
for line in sys.stdin:
    inputs_file, outputs_file = line.split("\\t")
    with numpy.load(inputs_file) as inputs, torch.no_grad():
        found = program(*(torch.from_numpy(inputs[name]) for name in names))
    numpy.savez(outputs_file.strip(), *(x.numpy() for x in found))
    print("albertine" in sys.modules, flush=True)
"""


def write(source: Opened, folder: Path, options: ExportOptions) -> list[ExportedFile]:
    """Write `torch/model.pt2`, on request also `torch/model_packed.pt2`, the graph of packed batches.

    Raises:
        SettingsError: a packed graph of relative positions.
    """
    (folder / FOLDER).mkdir(exist_ok=True)
    written = []
    for graph, stem in graphs_of(source.head, packed=options.packed):
        name = f"{FOLDER}/{stem}.pt2"
        save_program(graph, folder / name)
        facts = {**described(graph), "bytes": (folder / name).stat().st_size}
        run = OtherProcess(folder / name, tuple(graph.inputs), tuple(graph.outputs))
        written.append(ExportedFile(name, "float32", run, isinstance(graph, PackedGraph), facts))
    return written


def save_program(graph: Graph, file: Path) -> None:
    """Trace a graph and write it, its weights inside."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(graph, example_of(graph), dynamic_shapes=open_axes(graph))
        program.example_inputs = None  # they would be written too
        torch.export.save(program, file)


class OtherProcess:
    """Runs an archive in a process that imports torch and numpy, and nothing of ours; it starts at the first
    question and ends with this object.

    Raises:
        RunError: the process ended, or something there imported this package.
    """

    def __init__(self, file: Path, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> None:
        self.file, self.inputs, self.outputs = file, inputs, outputs
        self._process: subprocess.Popen[str] | None = None

    def __call__(self, inputs: Arrays) -> Arrays:
        process = self._process or self._start()
        assert process.stdin is not None and process.stdout is not None
        with TemporaryDirectory() as beside:
            inputs_file, outputs_file = Path(beside) / "inputs.npz", Path(beside) / "outputs.npz"
            np.savez(inputs_file, **inputs)  # type: ignore[arg-type]
            process.stdin.write(f"{inputs_file}\t{outputs_file}\n")
            process.stdin.flush()
            imported = process.stdout.readline().strip()
            if imported != "False":
                _, why = process.communicate()
                last = (why or "").strip().splitlines()[-1:]
                raise RunError(
                    "albertine was imported by it"
                    if imported == "True"
                    else f"cannot be run ({''.join(last)})",
                    where=self.file.name,
                    remedy="Please report this with the model's config.json",
                )
            with np.load(outputs_file) as found:
                return dict(zip(self.outputs, (found[name] for name in found.files), strict=True))

    def _start(self) -> subprocess.Popen[str]:
        # -I: without the folder that it is started in. What PYTHONPATH and the user have, where torch may be,
        # comes behind all else.
        places = os.pathsep.join(place for place in sys.path if place)
        command = [sys.executable, "-I", "-c", _READER, str(self.file), ",".join(self.inputs), places]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        return self._process

    def __del__(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
