"""Damaged model folders of every layout: each is read, or refused by an error of ours, soon and in little
memory. For more than the suite has time for:

    python -m tests.interop.folder_mutations 600 [FIRST CASE [LAYOUT]]
"""

from __future__ import annotations

import json
import resource
import shutil
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from albertine.errors import AlbertineError
from albertine.interop.huggingface.folders import read_folder, save_model
from albertine.interop.tensorflow.checkpoints import save_checkpoint
from albertine.model.sharing import SharingPlan
from albertine.pretraining.model_costs import copies_behind, look_up_model
from albertine.tokenizers.base import SpecialTokens
from albertine.tokenizers.load import load_tokenizer
from albertine.tokenizers.sentencepiece import ALBERT, XLNET, SentencePieceTokenizer
from albertine.tokenizers.sentencepiece_proto import Piece, PieceType, serialize_model
from albertine.tokenizers.wordpiece import BERT, WordPieceTokenizer
from tests.interop.mutations import _changed
from tests.interop.test_xlnet import our_model as xlnet_model
from tests.model import builders

SECONDS = 5.0
KEPT = Path(__file__).parent
ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 3, 1 << 20, 1 << 24, 1 << 31, 1 << 63, 10**400, 0.5, -0.0, 1e308,
    "", "gelu", "relu", "2", "\ud800", "x" * 5000, [], [1], ["x"] * 40, {}, {"a": 1}, [[[]]],
    float("nan"), float("inf"),
)  # fmt: skip


def vocabulary(special: SpecialTokens) -> SentencePieceTokenizer:
    """A small SentencePiece model of ALBERT's kind or XLNet's."""
    kinds = dict.fromkeys(vars(special).values(), PieceType.CONTROL) | {special.unk: PieceType.UNKNOWN}
    names = [*kinds, *(f"{start}{c}" for start in ("▁", "") for c in "abcdefghij1,"), "1,"]
    pieces = [Piece(n, -float(i), kinds.get(n, PieceType.NORMAL)) for i, n in enumerate(names)]
    return SentencePieceTokenizer(serialize_model(pieces, b""))


def originals(root: Path) -> dict[str, Path]:
    """A small sound folder of every layout, with its tokenizer; two have theirs in tokenizer.json alone."""
    words_of = WordPieceTokenizer([*vars(BERT).values(), *"abcdefghij北京", "##a"])
    parts_of, xlnets = vocabulary(ALBERT), vocabulary(XLNET)
    tokenizers = {"albert": parts_of, "ours": parts_of, "xlnet": xlnets, "xlnet-tf": xlnets}
    tied, words = SharingPlan.shared(3), {"embedding_mapping": "words"}
    modern = {"norm": "pre", "feed_forward": "gated", "biases": False, "type_vocab_size": 0}
    made = {
        "albert": (builders.model(SharingPlan.grouped(4, 2)), None),
        "bert": (builders.model(SharingPlan.unshared(2), embedding_size=24), None),
        "copies": (builders.model(SharingPlan.attention_only(3)), "transformers"),
        "roformer": (builders.model(tied, positions="rotary"), "transformers"),
        "modernbert": (builders.model(tied, positions="rotary", **modern), "transformers"),
        "xlnet": (xlnet_model(), "transformers"),
        "ours": (builders.model(tied, **words), None),
        "product": (builders.model(tied, **words), "transformers"),
    }
    for name, (model, layout) in made.items():
        tokenizer = tokenizers.get(name, words_of)
        save_model(model, tokenizer, root / name, layout=layout)  # type: ignore[arg-type]
    (root / "modernbert" / "vocab.txt").unlink()
    (root / "ours" / "spiece.model").unlink()
    for wanted, model in (
        ("google", builders.model(SharingPlan.grouped(4, 2))),
        ("brightmart", builders.model(tied, **words)),
        ("bert4keras", builders.model(SharingPlan.unshared(2))),
        ("xlnet-tf", xlnet_model(plan=SharingPlan.unshared(2))),
    ):
        save_checkpoint(model, tokenizers.get(wanted, words_of), root / wanted, wanted)
    for name in ("lonepatient/groups", "lonepatient/bright", "tensorflow/bert4keras/unshared"):
        shutil.copytree(KEPT / name, root / name.replace("/", "-"))
    _shards(root / "albert", root / "shards")
    return {path.name: path for path in sorted(root.iterdir())}


def _shards(whole: Path, folder: Path) -> None:
    folder.mkdir()
    tensors = load_file(whole / "model.safetensors")
    table = {name: f"model-{i % 2}.safetensors" for i, name in enumerate(tensors)}
    for file in set(table.values()):
        save_file({n: x for n, x in tensors.items() if table[n] == file}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": table}))
    shutil.copy(whole / "config.json", folder)


def mutated(original: Path, case: int, folder: Path) -> bool:
    """Damage a copy of a folder, and read its tokenizer and it; the result is whether it was read. Any error
    but ours gets out."""
    rng = np.random.default_rng([17, case])
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(original, folder, ignore=shutil.ignore_patterns("*.npz", "README.md"))
    for path in folder.iterdir():
        path.chmod(0o644)
    for _ in range(int(rng.integers(1, 3))):
        HOW[int(rng.integers(0, len(HOW)))](folder, rng)
    start = time.process_time()
    try:
        with suppress(AlbertineError):
            copies_behind(str(folder))
        with suppress(AlbertineError):
            load_tokenizer(folder)
        look_up_model(str(folder))
        read_folder(folder)
        return True
    except AlbertineError as error:
        text = str(error)
        assert 0 < len(text) < 20_000, f"case {case}: a message of {len(text)} characters"
        return False
    finally:
        assert time.process_time() - start < SECONDS, f"case {case}"


def _file(folder: Path, rng: np.random.Generator, *patterns: str) -> Path | None:
    found = sorted(p for pattern in patterns for p in folder.glob(pattern) if p.is_file())
    return found[int(rng.integers(0, len(found)))] if found else None


def _bytes(folder: Path, rng: np.random.Generator) -> None:
    """Any bytes of any file, or its end."""
    if (path := _file(folder, rng, "*")) is not None:
        data = path.read_bytes()
        cut = rng.random() < 0.3
        path.write_bytes(data[: int(rng.integers(0, len(data) + 1))] if cut else _changed(data, rng))


def _words(folder: Path, rng: np.random.Generator) -> None:
    """Words of a configuration: missing, or with a value of another kind."""
    path = _file(folder, rng, "*config*.json", "*.index.json", "tokenizer.json")
    try:
        tree = {} if path is None else json.loads(path.read_text(encoding="utf-8", errors="replace"))
    except ValueError:
        return
    if path is None or not isinstance(tree, dict) or not tree:
        return
    inner = [x for x in tree.values() if isinstance(x, dict) and x]
    place = inner[int(rng.integers(0, len(inner)))] if inner and rng.random() < 0.4 else tree
    for _ in range(int(rng.integers(1, 4))):
        name = sorted(place)[int(rng.integers(0, len(place)))]
        if rng.random() < 0.2 and len(place) > 1:
            del place[name]
        else:
            place[name] = ODD[int(rng.integers(0, len(ODD)))]
    path.write_text(json.dumps(tree))


def _header(folder: Path, rng: np.random.Generator) -> None:
    """The header of a safetensors file: shapes, places and types that lie, or a length that does."""
    if (path := _file(folder, rng, "*.safetensors")) is None:
        return
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0] if len(data) > 8 else 0
    try:
        head = json.loads(data[8 : 8 + size])
    except ValueError:
        return
    names = sorted(n for n in head if n != "__metadata__")
    for _ in range(int(rng.integers(1, 4))):
        entry = head[names[int(rng.integers(0, len(names)))]]
        kind = int(rng.integers(0, 5))
        if kind == 0:
            shapes: tuple[Any, ...] = ([1 << 40, 1 << 40], [0], [-1], [], [1 << 62, 4], [8, 8, 8], "x")
            entry["shape"] = shapes[int(rng.integers(0, 7))]
        elif kind == 1:
            entry["data_offsets"] = [int(x) for x in rng.integers(0, len(data), 2)]
        elif kind == 2:
            types = "F64", "F16", "I64", "BF16", "U8", "F8_E4M3", "X", ""
            entry["dtype"] = types[int(rng.integers(0, 8))]
        elif kind == 3:
            head[names[int(rng.integers(0, len(names)))]] = dict(entry)
        else:
            head["n" * int(rng.integers(1, 300))] = dict(entry)
    text = json.dumps(head).encode()
    length = len(text) if rng.random() < 0.8 else int(rng.integers(0, 1 << 62))
    path.write_bytes(struct.pack("<Q", length) + text + data[8 + size :])


def _missing(folder: Path, rng: np.random.Generator) -> None:
    """A file less, or a folder or a file of another name in its place."""
    if (path := _file(folder, rng, "*")) is not None:
        kind = int(rng.integers(0, 3))
        target = path.with_name(["x.index", "config.json", "model.h5"][kind])
        if kind == 0 or target.exists():
            path.unlink()
        else:
            path.rename(target)
        if rng.random() < 0.2:
            path.mkdir(exist_ok=True)


HOW: tuple[Callable[[Path, np.random.Generator], None], ...] = (_bytes, _words, _words, _header, _missing)


def main(seconds: float, case: int = 0, layout: str | None = None) -> None:
    torch.set_num_threads(1)
    end, read, first = time.monotonic() + seconds, Counter[str](), case
    with tempfile.TemporaryDirectory() as root:
        folders = originals(Path(root, "sound").absolute()) if not Path(root, "sound").mkdir() else {}
        names = [layout] if layout else list(folders)
        while time.monotonic() < end:
            name = names[case % len(names)]
            try:
                read[name] += mutated(folders[name], case, Path(root, "m"))
            except Exception as error:
                raise AssertionError(f"case {case} of {name}") from error
            case += 1
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{case - first:,} cases, {read.total():,} of them readable; at most {most:,.0f} MB in the process")


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0, *sys.argv[3:])
