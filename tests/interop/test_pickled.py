"""Old weights of Hugging Face, pickled by torch.save: read like safetensors, or refused and never run."""

from __future__ import annotations

import io
import json
import pickle
import resource
import struct
import subprocess
import sys
import tarfile
import time
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch

import albertine
from albertine.cli.app import run
from albertine.errors import ModelError
from albertine.interop import pickled, pickled_worker
from albertine.interop.pickled import PICKLED, PICKLED_INDEX
from albertine.model.model import Model
from albertine.model.sharing import SharingPlan
from albertine.tokenizers.wordpiece import WordPieceTokenizer
from tests.model import builders

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz", "##a", "北", "京"]


def put(folder: Path, kind: str = "albert") -> tuple[Model, dict[str, torch.Tensor]]:
    """A model's folder without its weights, the model, and its tensors by the names of transformers."""
    plan = SharingPlan.shared(2) if kind == "albert" else SharingPlan.unshared(2)
    model = builders.model(plan, embedding_size=8 if kind == "albert" else 24, max_position_embeddings=32)
    albertine.save(model, WordPieceTokenizer(PIECES), folder)
    from safetensors.torch import load_file

    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    return model, tensors


def aged(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """As transformers wrote them in 2019: gamma and beta, a table of positions, the decoder tied."""
    old: dict[str, torch.Tensor] = OrderedDict()
    for name, x in tensors.items():
        name = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        old[name] = x
    base = "albert" if any(name.startswith("albert.") for name in old) else "bert"
    head = "predictions" if base == "albert" else "cls.predictions"
    old[f"{base}.embeddings.position_ids"] = torch.arange(32)[None]
    old[f"{head}.decoder.weight"] = old[f"{base}.embeddings.word_embeddings.weight"]
    return old


def same(one: Model, other: Model) -> bool:
    state = other.state_dict()
    return one.heads == other.heads and all(torch.equal(x, state[n]) for n, x in one.state_dict().items())


@pytest.mark.parametrize(("kind", "zipped"), [("albert", True), ("albert", False), ("bert", False)])
def test_both_forms_of_torch_save_are_read(kind: str, zipped: bool, tmp_path: Path) -> None:
    model, tensors = put(tmp_path / "m", kind)
    torch.save(aged(tensors), tmp_path / "m" / PICKLED, _use_new_zipfile_serialization=zipped)
    if kind == "bert":  # whose config.json of 2018 has no model_type
        config = tmp_path / "m" / "config.json"
        tree = json.loads(config.read_text())
        assert tree.pop("model_type") == "bert" and tree.pop("architectures")
        config.write_text(json.dumps(tree))
    head = (tmp_path / "m" / PICKLED).read_bytes()[:14]
    assert head.startswith(pickled_worker.ZIP) if zipped else head == pickled_worker.STREAM
    assert same(albertine.load(tmp_path / "m"), model)


def test_heads_with_the_names_of_bert_and_shards(tmp_path: Path) -> None:
    model, tensors = put(tmp_path / "m")
    names = {
        "predictions.dense.": "cls.predictions.transform.dense.",
        "predictions.LayerNorm.": "cls.predictions.transform.LayerNorm.",
        "predictions.bias": "cls.predictions.bias",
        "sop_classifier.classifier.": "cls.seq_relationship.",
    }
    for new, old in names.items():
        tensors = {n.replace(new, old) if n.startswith(new) else n: x for n, x in tensors.items()}
    assert not any(name.startswith(("predictions.", "sop")) for name in tensors)
    half = len(tensors) // 2
    table = {}
    for number, part in enumerate((list(tensors.items())[:half], list(tensors.items())[half:]), 1):
        file = f"pytorch_model-{number:05d}-of-00002.bin"
        torch.save(dict(part), tmp_path / "m" / file)
        table |= {name: file for name, _ in part}
    (tmp_path / "m" / PICKLED_INDEX).write_text(json.dumps({"weight_map": table}))
    assert same(albertine.load(tmp_path / "m"), model)
    (tmp_path / "m" / "pytorch_model-00002-of-00002.bin").unlink()
    with pytest.raises(ModelError, match=r"00002-of-00002\.bin: is missing"):
        albertine.load(tmp_path / "m")


def test_the_verbs_read_them_and_safetensors_win(tmp_path: Path, capsys: Any) -> None:
    model, tensors = put(tmp_path / "m")
    torch.save(tensors, tmp_path / "m" / PICKLED)
    assert run(["info", str(tmp_path / "m")]) == 0
    assert run(["convert", str(tmp_path / "m"), str(tmp_path / "again")]) == 0, capsys.readouterr().err
    assert not (tmp_path / "again" / PICKLED).exists() and same(albertine.load(tmp_path / "again"), model)
    (tmp_path / "again" / PICKLED).write_bytes(b"nobody looks at this")
    assert same(albertine.load(tmp_path / "again"), model)


class Payload:
    """What unpickles by calling a function."""

    def __init__(self, function: Callable[..., Any], *arguments: object) -> None:
        self.call = function, arguments

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[object, ...]]:
        return self.call


def zipped(file: Path, content: bytes, how: int = zipfile.ZIP_STORED, **more: bytes) -> None:
    """A file as torch.save lays it out, around a pickle that it never wrote."""
    with zipfile.ZipFile(file, "w", how) as members:
        members.writestr("archive/data.pkl", content)
        members.writestr("archive/version", "3\n")
        members.writestr("archive/byteorder", "little")
        for name, data in more.items():
            members.writestr(f"archive/data/{name.strip('_')}", data)


def bent(x: torch.Tensor, size: tuple[int, ...], stride: tuple[int, ...]) -> Payload:
    """A tensor whose pickle claims another size and other strides than its memory has."""
    return Payload(
        torch._utils._rebuild_tensor_v2, x.untyped_storage(), 0, size, stride, False, OrderedDict()
    )


def test_nothing_is_run(tmp_path: Path) -> None:
    import os

    put(tmp_path / "m")
    file, mark = tmp_path / "m" / PICKLED, tmp_path / "mark"
    bomb = {"a": torch.zeros(3), "b": Payload(os.system, f"touch {mark}")}
    for way in (True, False):
        torch.save(bomb, file, _use_new_zipfile_serialization=way)
        with pytest.raises(ModelError, match=r"calls posix\.system") as caught:
            albertine.load(tmp_path / "m")
        assert str(caught.value).startswith(str(file)) and "nothing of it was run" in str(caught.value)
        assert not mark.exists()
    torch.load(file, weights_only=False)
    assert mark.exists(), "the payload is one"


def test_what_torch_save_does_not_write_is_refused_before_it_is_read(tmp_path: Path) -> None:
    put(tmp_path / "m")
    file = tmp_path / "m" / PICKLED
    refused = {
        "by how it begins": b"no weights" * 100,
        "a pointer of git-lfs": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 46747112\n",
        "is damaged, perhaps cut short": pickled_worker.ZIP + bytes(400),
        "is no file of torch.save": b"",
    }
    for message, content in refused.items():
        file.write_bytes(content)
        with pytest.raises(ModelError, match=message):
            albertine.load(tmp_path / "m")
    with tarfile.open(file, "w") as members:
        members.addfile(tarfile.TarInfo("storages"), io.BytesIO())
    with pytest.raises(ModelError, match="a tar file of the first versions of torch"):
        albertine.load(tmp_path / "m")
    zipped(file, pickle.dumps({}), zipfile.ZIP_DEFLATED, _0=bytes(50_000_000))
    assert file.stat().st_size < 100_000
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    began = time.monotonic()
    with pytest.raises(ModelError, match="has compressed parts"):
        albertine.load(tmp_path / "m")
    assert (
        time.monotonic() - began < 20
        and resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss - before < 40_000
    )
    zipped(file, b"", _0=bytes(1000))
    content = bytearray(file.read_bytes())
    place = content.index(b"PK\x01\x02", content.index(b"PK\x01\x02") + 1)
    content[place + 20 : place + 28] = struct.pack("<II", 1 << 30, 1 << 30)
    file.write_bytes(content)
    with pytest.raises(ModelError, match="claims more than it holds"):
        albertine.load(tmp_path / "m")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            OrderedDict(w=bent(torch.zeros(4), (1 << 40,), (0,))),
            "w claims 1,099,511,627,776 bytes, more than",
        ),
        (OrderedDict(w=bent(torch.zeros(4), (100, 100), (100, 1))), "is damaged"),
        (
            {f"w{i}": bent(torch.ones(5000), (5000,), (1,)) for i in range(9)},
            "claims 20,000 bytes, more than",
        ),
        ({"w": torch.zeros(3), "epoch": 7}, "holds a int under 'epoch'"),
        ([torch.zeros(3)], "holds a list, where weights are a table"),
        ({"w": torch.empty(1 << 40, device="meta")}, "w is no plain tensor"),
        ({1: torch.zeros(3)}, "holds a dict, where weights are a table"),
    ],
)
def test_tables_that_claim_what_they_do_not_hold(
    content: Any, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if isinstance(content, dict) and len(content) == 9:  # of one memory, as tied weights are, but too often
        one = torch.ones(5000)
        content = {name: one.view(5000) for name in content}
    torch.save(content, tmp_path / PICKLED)

    def refuse(file: Path, what: str) -> NoReturn:
        raise ModelError(what, where=file)

    monkeypatch.setattr(pickled_worker, "refuse", refuse)  # which would end this process
    with pytest.raises(ModelError, match=message):
        pickled_worker.read(tmp_path / PICKLED)


def test_memory_is_bounded_by_the_size_of_the_file(tmp_path: Path) -> None:
    """The form before torch 1.6 makes room for what a file claims before it reads on."""
    file = tmp_path / PICKLED
    torch.save({"w": torch.zeros(201)}, file, _use_new_zipfile_serialization=False)
    content = file.read_bytes()
    assert content.count(b"K\xc9") >= 1
    file.write_bytes(content.replace(b"K\xc9", b"J" + struct.pack("<i", 2**31 - 1)))
    with (
        pytest.raises(ModelError, match=r"needs more memory than weights of its size do \(268 MB\)"),
        pickled.as_safetensors([file]),
    ):
        pass


def test_the_process_has_little_time_and_no_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, script = tmp_path / PICKLED, tmp_path / "worker.py"
    file.write_bytes(pickled_worker.STREAM)
    monkeypatch.setattr(pickled_worker, "__file__", str(script))
    monkeypatch.setattr(pickled, "SECONDS", 1)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    script.write_text("while True: pass")
    began = time.monotonic()
    with pytest.raises(ModelError, match="was not read within 1 s"), pickled.as_safetensors([file]):
        pass
    assert time.monotonic() - began < 10
    script.write_text("import os, sys; sys.exit(str(sorted(os.environ)) + str(sys.path[0]))")
    with (
        pytest.raises(ModelError, match="cannot be read within 268 MB of memory") as caught,
        pickled.as_safetensors([file]),
    ):
        pass
    assert "OMP_NUM_THREADS" in str(caught.value) and "HF_TOKEN" not in str(caught.value)
    assert str(tmp_path) not in str(caught.value).partition("(")[2], "no module comes from beside the script"
    monkeypatch.setattr(pickled, "MOST_BYTES", 3)
    with pytest.raises(ModelError, match="is pickled and has"), pickled.as_safetensors([file]):
        pass


def test_the_limits_are_set(tmp_path: Path) -> None:
    """A worker that requests more memory than its limit gets none."""
    code = (
        "from albertine.interop import pickled_worker as w; import resource; w.confine(50 << 20)\n"
        "w._limit(resource.RLIMIT_CPU, 1)\n"
        "try: bytearray(200 << 20)\n"
        "except MemoryError: print('bounded', flush=True)\n"
        "while True: pass"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "bounded\n" and done.returncode < 0


def test_a_file_that_is_cut_short(tmp_path: Path) -> None:
    file = tmp_path / PICKLED
    torch.save({"w": torch.zeros(5000)}, file, _use_new_zipfile_serialization=False)
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(ModelError, match="is damaged"), pickled.as_safetensors([file]):
        pass


def test_files_changed_at_random_are_read_or_refused(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.interop.fuzz_pickled", "2", "16", str(tmp_path)]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=120, check=True)
    found = json.loads(done.stdout)
    assert found.keys() <= {"read", "refused"} and found["refused"] >= 3, done.stdout


def test_the_process_finds_what_a_user_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, script = tmp_path / PICKLED, tmp_path / "worker.py"
    file.write_bytes(pickled_worker.STREAM)
    script.write_text("import os, sys; sys.exit(os.environ.get('PYTHONUSERBASE', 'unknown'))")
    monkeypatch.setattr(pickled_worker, "__file__", str(script))
    monkeypatch.setenv("PYTHONUSERBASE", "/scratch/me")
    with pytest.raises(ModelError, match="/scratch/me"), pickled.as_safetensors([file]):
        pass
