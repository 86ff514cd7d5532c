"""A torch.export archive, run in a process without this package."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from itertools import pairwise
from pathlib import Path
from venv import EnvBuilder

import numpy as np
import pytest
import torch

import albertine
from albertine.bench.inputs import inputs
from albertine.core.batch import from_padded
from albertine.errors import RunError, SettingsError
from albertine.export.archive import OtherProcess, save_program
from albertine.export.export_model import export
from albertine.export.formats import ExportOptions
from albertine.export.graph import graph_of
from albertine.export.source_model import opened
from albertine.export.verify import verify
from benchmarks import exports
from tests.export import saved
from tests.export.heads import PLANS, head_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    room = tmp_path_factory.mktemp("archive")
    source = saved.classifier(room / "source")
    return export(source, room / "out", ["torch"], options=ExportOptions(packed=True)).folder


@pytest.mark.parametrize(("stem", "layout"), [("model", "padded"), ("model_packed", "packed")])
def test_it_was_verified_in_another_process(stem: str, layout: str, folder: Path) -> None:
    report = json.loads((folder / "export.json").read_text())["files"]
    one = report[f"torch/{stem}.pt2"]
    assert one["layout"] == layout
    assert one["greatest_difference"] < 1e-5 and len(one["shapes"]) >= 12


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["compare", "answer or not", "relate", "embed by depths"])
def test_heads_that_look_at_neighbours_are_traced(name: str, tmp_path: Path) -> None:
    """For every length, including one token."""
    head = head_of(name)
    graph = graph_of(head, packed=False)
    save_program(graph, tmp_path / "model.pt2")
    other = OtherProcess(tmp_path / "model.pt2", tuple(graph.inputs), tuple(graph.outputs))
    assert verify(head, other).exact


def test_it_is_loaded_by_torch_alone(folder: Path) -> None:
    """With sizes other than the traced ones."""
    ids = np.arange(22).reshape(2, 11) + 5
    mask, types = np.ones_like(ids), np.zeros_like(ids)
    mask[1, 8:] = 0
    np.savez(folder / "batch.npz", ids=ids, mask=mask, types=types)
    code = (
        "import sys, numpy, torch\n"
        "program = torch.export.load('torch/model.pt2').module()\n"
        "batch = numpy.load('batch.npz')\n"
        "found = program(*(torch.from_numpy(batch[name]) for name in ('ids', 'mask', 'types')))\n"
        "numpy.save('found.npy', found[0].detach().numpy())\n"
        "sys.exit('albertine' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    packed, _ = from_padded(*(torch.from_numpy(x) for x in (ids, mask, types)))
    head = opened(folder.parent / "source").head
    with torch.no_grad():
        (wanted,) = head.source(packed, None)
    assert np.abs(np.load(folder / "found.npy") - wanted.numpy()).max() < 1e-5


def test_packed_texts_do_not_see_each_other(folder: Path) -> None:
    """Each alone in its batch gets the answers that it gets among others."""
    ids, ends = np.arange(19) + 5, [0, 4, 5, 19]
    names = ("input_ids", "token_type_ids", "cu_seqlens")
    other = OtherProcess(folder / "torch" / "model_packed.pt2", names, ("logits",))

    def logits(ids: np.ndarray, ends: list[int]) -> np.ndarray:
        return other(dict(zip(names, (ids, np.zeros_like(ids), np.array(ends)), strict=True)))["logits"]

    together = logits(ids, ends)
    alone = [logits(ids[a:b], [0, b - a]) for a, b in pairwise(ends)]
    assert together.shape == (3, 3) and np.abs(together - np.concatenate(alone)).max() < 1e-5


@pytest.mark.sample(1)
@pytest.mark.parametrize("packed", [False, True])
def test_the_benchmark_runs_it_in_its_own_process(packed: bool, folder: Path) -> None:
    """Catches: other tokens than the usual ones; a packed archive that gets padding."""
    head = opened(folder.parent / "source").head
    batch = inputs("varied", [5, 16, 9], head.base.config.vocab_size)
    file = folder / "torch" / ("model_packed.pt2" if packed else "model.pt2")
    with torch.no_grad():
        (wanted,) = head.source(batch.packed, None)
    found = exports._way(file, "float32", packed, 1)(batch)
    assert (found - wanted).abs().max() < 1e-5


def test_relative_positions_have_no_packed_archive(tmp_path: Path) -> None:
    albertine.save(saved.model(**PLANS["xlnet"]), None, tmp_path / "xlnet")
    with pytest.raises(SettingsError, match="relative positions have a padded graph only"):
        export(tmp_path / "xlnet", tmp_path / "out", ["torch"], options=ExportOptions(packed=True))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("stem", ["model", "model_packed"])
def test_weights_stand_once_and_no_example_is_kept(stem: str, folder: Path) -> None:
    wanted = sum(x.numel() * 4 for x in opened(folder.parent / "source").head.model.parameters())
    file = folder / "torch" / f"{stem}.pt2"
    with zipfile.ZipFile(file) as archive:
        held = [one for one in archive.infolist() if "/data/weights/" in one.filename]
        weights = sum(one.file_size for one in held if not one.filename.endswith(".json"))
        kept = [archive.read(name) for name in archive.namelist() if "sample_inputs" in name]
    assert wanted <= weights < 1.2 * wanted
    assert not any(kept)  # an empty file where there is none


def test_torch_may_lie_where_this_process_alone_looks(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after `pip install --user`, or by PYTHONPATH. Catches: a check that always fails there."""
    EnvBuilder(with_pip=False).create(tmp_path / "bare")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bare" / "bin" / "python"))
    names = ("input_ids", "attention_mask", "token_type_ids")
    other = OtherProcess(folder / "torch" / "model.pt2", names, ("logits",))
    assert np.isfinite(other({name: np.ones((1, 3), np.int64) for name in names})["logits"]).all()


def test_the_reader_reports_a_file_that_is_no_archive(tmp_path: Path) -> None:
    (tmp_path / "x.pt2").write_bytes(b"nothing")
    with pytest.raises(RunError, match="cannot be run"):
        OtherProcess(tmp_path / "x.pt2", ("input_ids",), ("logits",))(
            {"input_ids": np.ones((1, 2), np.int64)}
        )
