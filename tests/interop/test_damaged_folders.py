"""Damaged folders of every layout: an error of ours, soon; and what fuzzing once found."""

from __future__ import annotations

import codecs
import json
import os
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import albertine
from albertine import Predictor
from albertine.core.released import released_folder
from albertine.errors import AlbertineError, ModelError
from albertine.pretraining.model_costs import look_up_model
from tests.interop.folder_mutations import mutated, originals

CASES = 260


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return originals(tmp_path_factory.mktemp("sound"))


def test_what_is_damaged_is_sound_before(sound: dict[str, Path]) -> None:
    """Otherwise the cases would end at the first check."""
    for name, folder in sound.items():
        albertine.load(folder)
        if name != "shards" and not name.startswith(("lonepatient", "tensorflow")):
            assert albertine.load_tokenizer(folder).encode("a1,") != []


def test_damage_is_refused_or_read(sound: dict[str, Path], tmp_path: Path) -> None:
    names, read = list(sound), Counter[bool]()
    for case in range(CASES):
        read[mutated(sound[names[case % len(names)]], case, tmp_path / "m")] += 1
    assert min(read[True], read[False]) > CASES // 20


def _words(file: str, **changes: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        tree = json.loads((folder / file).read_text()) | changes
        (folder / file).write_text(json.dumps(tree))

    return change


def _long_shard(folder: Path) -> None:
    file = folder / "model.safetensors.index.json"
    file.write_text(json.dumps({"weight_map": {"x": "y" * 5000}}))


@pytest.mark.parametrize(
    ("layout", "damage", "message"),
    [
        ("modernbert", _words("config.json", rope_parameters=[1]), "a word has a value of the wrong kind"),
        ("bert", _words("config.json", num_hidden_layers=4096), "46 tensors, and .* names 4,096 layers"),
        (
            "google",
            _words("albert_config.json", num_hidden_layers=4096, num_hidden_groups=4096),
            "4,096 layers",
        ),
        ("shards", _long_shard, "is missing, the index names it"),
    ],
)
def test_what_fuzzing_found(
    layout: str, damage: Callable[[Path], None], message: str, sound: dict[str, Path], tmp_path: Path
) -> None:
    folder = tmp_path / "m"
    shutil.copytree(sound[layout], folder)
    damage(folder)
    with pytest.raises(ModelError, match=message) as caught:
        albertine.load(folder)
    assert len(str(caught.value)) < 1000
    if message.startswith("a word"):
        with pytest.raises(ModelError, match=message):
            look_up_model(str(folder))


@pytest.mark.parametrize("name", ["tf_model.h5", "best_model.weights", "model.keras"])
def test_files_of_keras_are_named(name: str, tmp_path: Path) -> None:
    """The error names how to extract the weights; a file of any other kind is not taken for one of them."""
    (tmp_path / name).write_bytes(b"\x89HDF\r\n\x1a\n")
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(ModelError) as caught:
        albertine.load(tmp_path)
    assert ("save_weights_as_checkpoint" in str(caught.value)) == (name != "best_model.weights")


def test_keras_beside_safetensors_is_no_matter(sound: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(sound["albert"], tmp_path / "m")
    (tmp_path / "m" / "tf_model.h5").write_bytes(b"x")
    albertine.load(tmp_path / "m")


@pytest.mark.parametrize("alone", [True, False])
def test_an_adapter_is_not_passed_over(alone: bool, sound: dict[str, Path], tmp_path: Path) -> None:
    """Catches: the numbers of the model without it, where transformers adds it to the weights."""
    folder = tmp_path / "m"
    shutil.copytree(sound["albert"], folder)
    (folder / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    if alone:
        (folder / "config.json").unlink()
        (folder / "model.safetensors").rename(folder / "adapter_model.safetensors")
    with pytest.raises(ModelError, match="adapter of peft") as caught:
        albertine.load(folder)
    assert "merge_and_unload" in str(caught.value)


WORD = "albert.embeddings.word_embeddings.weight"


def _headed(change: Callable[[dict[str, Any]], None], length: int | None = None) -> Callable[[Path], None]:
    """The file with another header, whose first eight bytes may state another length."""

    def damage(folder: Path) -> None:
        path = folder / "model.safetensors"
        data = path.read_bytes()
        size = int.from_bytes(data[:8], "little")
        head = json.loads(data[8 : 8 + size])
        change(head)
        text = json.dumps(head).encode()
        stated = len(text) if length is None else length
        path.write_bytes(stated.to_bytes(8, "little") + text + data[8 + size :])

    return damage


def _replaced(name: str, data: bytes) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (folder / name).write_bytes(data)

    return damage


def _over_each_other(head: dict[str, Any]) -> None:
    first, second = sorted(n for n in head if n != "__metadata__")[:2]
    head[second] = dict(head[first])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_headed(_over_each_other), "not a whole safetensors file"),
        (_headed(lambda head: head[WORD].update(shape=[1 << 40, 1 << 40])), "not a whole safetensors file"),
        (_headed(lambda head: head[WORD].update(shape=[-53, -8])), "not a whole safetensors file"),
        (_headed(lambda head: head[WORD].update(shape=[8, 53])), r"has shape \[8, 53\]"),
        (_headed(lambda head: head[WORD].update(dtype="I32")), "is stored as I32"),
        (_headed(lambda head: None, length=1 << 62), "not a whole safetensors file"),
        (_headed(lambda head: None, length=0), "not a whole safetensors file"),
        (
            lambda folder: (folder / "model.safetensors").write_bytes(b"PK\3\4" * 20),
            "not a whole safetensors",
        ),
        (
            lambda folder: (folder / "model.safetensors").write_bytes(bytes(1 << 20)),
            "not a whole safetensors",
        ),
        (lambda folder: (folder / "config.json").write_bytes(b" " * (20 << 20)), "too large"),
    ],
)
def test_contradictory_safetensors_are_refused(
    damage: Callable[[Path], None], message: str, sound: dict[str, Path], tmp_path: Path
) -> None:
    """In less than a second of CPU time."""
    shutil.copytree(sound["albert"], tmp_path / "m")
    damage(tmp_path / "m")
    start = time.process_time()
    with pytest.raises(ModelError, match=message) as caught:
        albertine.load(tmp_path / "m")
    assert time.process_time() - start < 1 and len(str(caught.value)) < 500


@pytest.mark.parametrize("kind", ["fifo", "device"])
@pytest.mark.parametrize(
    "name", ["spiece.model", "config.json", "model.safetensors", "tokenizer_config.json", "tokenizer.json"]
)
def test_a_pipe_or_a_device_in_a_folder_is_not_read(tmp_path: Path, name: str, kind: str) -> None:
    """Catches: a pipe is waited for without end, and a device read until the memory is full."""
    folder = shutil.copytree(released_folder("albertine-mini-en"), tmp_path / "model")
    (folder / name).unlink(missing_ok=True)
    if kind == "fifo":
        os.mkfifo(folder / name)
    else:
        (folder / name).symlink_to("/dev/zero")
    done: list[object] = []

    def work() -> None:
        for load in (albertine.load_tokenizer, albertine.load):
            try:
                done.append(load(folder))
            except AlbertineError as error:
                done.append(str(error))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(60)
    assert len(done) == 2
    tokenizer, model = done
    if name == "spiece.model":
        assert "spiece.model: cannot be read (it is a pipe or a device" in str(tokenizer)
    elif name in ("config.json", "model.safetensors"):
        assert isinstance(model, str)


@pytest.mark.parametrize("value", [10**400, -(10**400), 10**309])
@pytest.mark.parametrize("word", ["layer_norm_eps", "initializer_range", "hidden_dropout_prob"])
def test_a_number_that_is_larger_than_any_float_is_refused(
    sound: dict[str, Path], tmp_path: Path, word: str, value: int
) -> None:
    for name, folder in sound.items():
        if not (folder / "config.json").is_file():
            continue
        copied = shutil.copytree(folder, tmp_path / name)
        tree = json.loads((copied / "config.json").read_text())
        if word not in tree:
            continue
        (copied / "config.json").write_text(json.dumps({**tree, word: value}))
        with pytest.raises(ModelError, match=word):
            albertine.load(copied)


def test_a_mark_of_utf_8_before_a_configuration_is_passed_over(tmp_path: Path) -> None:
    """As written by Windows editors."""
    sound = released_folder("albertine-mini-en")
    folder = shutil.copytree(sound, tmp_path / "model")
    for name in ("config.json", "tokenizer_config.json", "tokenizer.json", "modules.json"):
        if (folder / name).is_file():
            (folder / name).write_bytes(codecs.BOM_UTF8 + (folder / name).read_bytes())
    texts = ["the old man", "it was good"]
    assert Predictor(folder).embed(texts) == pytest.approx(Predictor(sound).embed(texts))
    assert albertine.load_tokenizer(folder).encode("It was") == albertine.load_tokenizer(sound).encode(
        "It was"
    )
