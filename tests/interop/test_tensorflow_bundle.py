"""TensorFlow's checkpoints: what TensorFlow wrote is read, what we write it reads, and no damaged or lying
file does harm."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from albertine.core.protobuf import MalformedProtobuf, encode_field, encode_varint, read_varint
from albertine.errors import ModelError
from albertine.interop.tensorflow import bundle as tensorflow_bundle
from albertine.interop.tensorflow import sorted_table
from albertine.interop.tensorflow.bundle import open_bundle, read_index, write_bundle
from albertine.interop.tensorflow.crc32c import crc32c, masked
from albertine.interop.tensorflow.snappy import decompressed
from albertine.interop.tensorflow.sorted_table import FOOTER, MAGIC, read_table, table
from tests.interop.mutations import mutated

HERE = Path(__file__).with_name("tensorflow")
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
COUNTS = {
    "tfhub_albert_base_3": (30, 11_812_272),
    "brightmart_tiny": (31, 4_295_186),
    "albert_tiny_google_snappy": (97, 3 * 4_142_594),
    "albert_tiny_google_tuned": (76, 3 * 4_080_520),
}
"""Entries, and numbers in those of float32, by formula from the shapes; slots count twice more."""


def tensors(count: int = 40) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(16)
    found = {f"bert/encoder/layer_{i}/kernel": torch.randn(7, 5, generator=generator) for i in range(count)}
    return found | {
        "scalar": torch.tensor(3.5),
        "half": torch.randn(3, 4, generator=generator).half(),
        "bfloat": torch.randn(3, generator=generator).bfloat16(),
        "double": torch.randn(2, 2, 2, generator=generator).double(),
        "nothing": torch.empty(0, 3),
        "wide": torch.randn(3, 70_001, generator=generator),
    }


@pytest.mark.parametrize("size", [0, 1, 9, 4095, 4096, 4097, 70_001])
def test_the_checksum_is_castagnolis(size: int) -> None:
    data = np.random.default_rng(size).bytes(size)
    state = 0xFFFFFFFF
    for byte in data:
        state ^= byte
        for _ in range(8):
            state = (state >> 1) ^ (0x82F63B78 if state & 1 else 0)
    assert crc32c(data) == state ^ 0xFFFFFFFF


def test_known_checksums() -> None:
    """RFC 3720, appendix B.4, and the same over more than one chunk."""
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(bytes(range(32))) == 0x46DD794E
    long = bytes(range(251)) * 40_000  # over several chunks
    assert crc32c(long[:-7]) != crc32c(long) == crc32c(memoryview(bytearray(long)))
    assert masked(b"") == 0xA282EAD8


@pytest.mark.parametrize("name", ["one", "three"])
def test_what_tensorflow_wrote(name: str) -> None:
    shards, entries = read_index(HERE / f"{name}.index")
    assert shards == {"one": 1, "three": 3}[name] and len(entries) == 28
    with open_bundle(HERE / name) as found:
        assert "global_step" not in found.shapes and "a/text" not in found.shapes  # no weights
        for i in range(24):
            kernel = found.read(f"bert/encoder/layer_{i}/output/dense/kernel")
            assert kernel.dtype == DTYPES[i % 4]
            assert torch.equal(kernel.double(), torch.arange(6).double().view(2, 3) * 0.25 - i)
        assert found.read("a/scalar") == 2.5 and found.read("a/nothing").shape == (0, 3)


@pytest.mark.parametrize("name", COUNTS)
def test_published_indexes(name: str) -> None:
    """Also the one whose blocks are compressed."""
    shards, entries = read_index(HERE / f"{name}.index")
    numbers = sum(int(np.prod(entry.shape)) for entry in entries.values() if entry.dtype == 1)
    assert (shards, len(entries), numbers) == (1, *COUNTS[name])


@pytest.mark.parametrize("shards", [1, 3])
def test_what_is_written_comes_back(shards: int, tmp_path: Path) -> None:
    given_ = tensors()
    write_bundle(tmp_path / "m", given_, shards)
    assert len(list(tmp_path.iterdir())) == 1 + shards
    with open_bundle(tmp_path / "m") as found:
        assert found.shapes == {name: tuple(x.shape) for name, x in sorted(given_.items())}
        for name, x in given_.items():
            again = found.read(name)
            assert again.dtype == x.dtype and torch.equal(again, x)


def test_tensorflow_reads_what_is_written(tmp_path: Path) -> None:
    python = os.environ.get("ALBERTINE_TENSORFLOW")
    if not python:
        pytest.skip("ALBERTINE_TENSORFLOW names no Python with tensorflow-cpu==2.15.1")
    for shards in (1, 3):
        prefix, file = tmp_path / f"m{shards}", tmp_path / f"{shards}.npz"
        write_bundle(prefix, tensors(20_000), shards)  # more than one block of names
        subprocess.run([python, HERE / "oracle.py", "read", prefix, file], check=True)
        found = np.load(file)
        assert set(found.files) == set(tensors(20_000))
        for name, x in tensors(20_000).items():
            assert np.array_equal(found[name], x.double().numpy()), name


def test_a_table_of_many_blocks() -> None:
    entries = {f"{i:07d}".encode(): bytes([i % 251]) * 40 for i in range(20_000)}
    data = table(entries.items())
    assert read_table(data) == entries and data.endswith(MAGIC)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.binary(max_size=30), st.binary(max_size=30), max_size=50))
def test_any_table_comes_back(entries: dict[bytes, bytes]) -> None:
    ordered = dict(sorted(entries.items()))
    assert list(read_table(table(ordered.items())).items()) == list(ordered.items())


def test_varints() -> None:
    for value in (0, 1, 127, 128, 300, 2**32 - 1, 2**63, 2**64 - 1):
        assert read_varint(encode_varint(value) + b"x", 0) == (value, len(encode_varint(value)))
    for cut in (b"", b"\x80", b"\xff" * 11):
        with pytest.raises(MalformedProtobuf):
            read_varint(cut, 0)


def test_snappy() -> None:
    """Literals of every kind of length, copies of every kind, one that reads what it writes."""
    word = bytes(range(100))
    assert decompressed(b"\x05\x10hello", 9) == b"hello"
    assert decompressed(encode_varint(100) + bytes([60 << 2, 99]) + word, 100) == word
    assert decompressed(encode_varint(100) + bytes([61 << 2, 99, 0]) + word, 100) == word
    assert decompressed(b"\x08\x0cabcd" + bytes([0 << 2 | 1, 4]), 99) == b"abcdabcd"
    assert decompressed(b"\x07\x0cabcd" + bytes([2 << 2 | 2, 4, 0]), 99) == b"abcdabc"
    assert decompressed(b"\x07\x0cabcd" + bytes([2 << 2 | 3, 1, 0, 0, 0]), 99) == b"abcdddd"
    assert decompressed(b"\x0b\x04ab" + bytes([8 << 2 | 2, 2, 0]), 99) == b"abababababa"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xff\xff\xff\x0f",  # states 4 GB
        encode_varint(65) + b"\x00a" + b"\xfe\x01\x00" * 2,  # grows beyond its stated length
        b"\x05\x10hell",
        b"\x05\x0chell",
        b"\x06\x0cabcd" + bytes([1 << 2 | 2, 0, 0]),  # from nowhere
        b"\x06\x0cabcd" + bytes([1 << 2 | 2, 5, 0]),  # from before the beginning
        b"\x06\x0cabcd" + bytes([1 << 2 | 2, 5]),
        bytes([9, 63 << 2, 255, 255, 255, 255]),
    ],
)
def test_contradictory_snappy_data_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedProtobuf):
        decompressed(data, 64)


def test_snappy_stops_at_its_stated_length() -> None:
    """Not after decompressing everything."""
    with pytest.raises(MalformedProtobuf, match="or too much"):
        decompressed(encode_varint(65) + b"\x00a" + b"\xfe\x01\x00" * 1000, 99)


def test_what_all_blocks_hold_together_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many small blocks that each expand a lot are a decompression bomb too."""
    out, handles = bytearray(), []
    for key in (b"a", b"b"):
        plain = bytearray()
        sorted_table._put(plain, [(key, bytes(900))])
        block = bytes(plain[:-5])
        small = encode_varint(len(block)) + bytes([61 << 2]) + (len(block) - 1).to_bytes(2, "little") + block
        handles.append((key, encode_varint(len(out)) + encode_varint(len(small))))
        out += small + b"\x01" + masked(small + b"\x01").to_bytes(4, "little")
    data = forged(handles, out)
    assert read_table(data) == {b"a": bytes(900), b"b": bytes(900)}
    monkeypatch.setattr(sorted_table, "_MAX_BLOCK", 1000)
    with pytest.raises(MalformedProtobuf, match="claims to hold"):
        read_table(data)


def test_a_key_that_shares_more_than_there_was() -> None:
    block = b"\x05\x01\x00k" + bytes(4) + b"\x01\0\0\0"
    out = bytearray(block + b"\0" + masked(block + b"\0").to_bytes(4, "little"))
    with pytest.raises(MalformedProtobuf, match="too long"):
        read_table(forged([(b"z", b"\0" + encode_varint(len(block)))], out))


def forged(blocks: list[tuple[bytes, bytes]], out: bytearray) -> bytes:
    """A table whose index lists these blocks."""
    tail = sorted_table._put(out, []) + sorted_table._put(out, blocks)
    return bytes(out + tail.ljust(FOOTER - 8, b"\0") + MAGIC)


def test_a_block_is_not_read_twice() -> None:
    """An index of a thousand names for one block would make a small file a large one."""
    out = bytearray()
    place = sorted_table._put(out, [(b"a", b"1"), (b"b", b"2")])
    assert read_table(forged([(b"b", place)], bytearray(out))) == {b"a": b"1", b"b": b"2"}
    with pytest.raises(MalformedProtobuf, match="over each other"):
        read_table(forged([(b"b", place), (b"c", place)], bytearray(out)))


def test_an_index_that_names_itself() -> None:
    out = bytearray()
    sorted_table._put(out, [(b"a", b"1")])
    size = encode_varint(len(out)) + encode_varint(20)
    with pytest.raises(MalformedProtobuf):
        read_table(forged([(b"b", size)], out))


def test_names_out_of_order_are_refused() -> None:
    with pytest.raises(MalformedProtobuf, match="order"):
        read_table(table([(b"b", b"1"), (b"a", b"2")]))


def record(name: str, **changes: int) -> Callable[[dict[bytes, bytes]], None]:
    """A change of one number of a tensor's record."""
    numbers = {"dtype": 1, "shard": 3, "offset": 4, "size": 5}

    def change(records: dict[bytes, bytes]) -> None:
        for part, value in changes.items():
            records[name.encode()] += encode_field(numbers[part], value)  # what comes last wins

    return change


def shape(*sizes: int) -> Callable[[dict[bytes, bytes]], None]:
    def change(records: dict[bytes, bytes]) -> None:
        tail = encode_field(2, b"".join(encode_field(2, encode_field(1, size)) for size in sizes))
        records[b"scalar"] = encode_field(1, 1) + tail + encode_field(5, 4)

    return change


def header(data: bytes) -> Callable[[dict[bytes, bytes]], None]:
    return lambda records: records.update({b"": data})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda records: records.pop(b""), "no header"),
        (header(b""), "0 data files"),
        (header(encode_field(1, 1 << 40)), "data files"),
        (header(encode_field(1, 1) + encode_field(2, 1)), "order of bytes"),
        (header(b"\x08"), "cut short"),
        (header(b"\x0f\x00"), "unknown kind"),
        (record("scalar", shard=1), "data file 1 of 1"),
        (record("scalar", size=1 << 40), "has 1099511627776 bytes"),
        (record("scalar", offset=1 << 63), "and its index names"),
        (record("scalar", offset=1), "over each other"),
        (shape(2**40, 2**40), "has 4 bytes"),
        (shape(2**63), "impossible shape"),
        (shape(*[1] * 9), "impossible shape"),
        (lambda records: records.update({b"\xff": b""}), "not a whole index"),
    ],
)
def test_contradictory_records_are_refused(
    change: Callable[[dict[bytes, bytes]], None], message: str, tmp_path: Path
) -> None:
    write_bundle(tmp_path / "m", tensors(3))
    index = tmp_path / "m.index"
    records = read_table(index.read_bytes())
    change(records)
    index.write_bytes(table(sorted(records.items())))
    with pytest.raises(ModelError, match=message), open_bundle(tmp_path / "m"):
        pass


@pytest.mark.parametrize("part", ["index", "data-00000-of-00001"])
@pytest.mark.parametrize("keep", [0, 1, 47, 48, -1])
def test_a_file_that_is_cut_short_is_refused(part: str, keep: int, tmp_path: Path) -> None:
    write_bundle(tmp_path / "m", tensors(3))
    file = tmp_path / f"m.{part}"
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(ModelError, match="cut short"), open_bundle(tmp_path / "m"):
        pass


def test_a_missing_data_file_is_named(tmp_path: Path) -> None:
    write_bundle(tmp_path / "m", tensors(3), 2)
    (tmp_path / "m.data-00001-of-00002").unlink()
    with (
        pytest.raises(ModelError, match=r"00001-of-00002.*Fetch every data file"),
        open_bundle(tmp_path / "m"),
    ):
        pass


def test_a_changed_bit_is_noticed(tmp_path: Path) -> None:
    """In the data by the checksum of its tensor; the others are read."""
    write_bundle(tmp_path / "m", tensors(3))
    file = tmp_path / "m.data-00000-of-00001"
    data = bytearray(file.read_bytes())
    data[0] ^= 1
    file.write_bytes(data)
    with open_bundle(tmp_path / "m") as found:
        found.read("wide")
        with pytest.raises(ModelError, match="checksum of bert/encoder/layer_0/kernel"):
            found.read("bert/encoder/layer_0/kernel")


def test_a_tensor_in_parts_is_refused(tmp_path: Path) -> None:
    write_bundle(tmp_path / "m", tensors(3))
    records = read_table((tmp_path / "m.index").read_bytes())
    records[b"scalar"] += encode_field(7, b"\x0a\x00")
    (tmp_path / "m.index").write_bytes(table(records.items()))
    with open_bundle(tmp_path / "m") as found:
        assert "scalar" not in found.shapes and "half" in found.shapes


def test_a_huge_index_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_bundle(tmp_path / "m", tensors(3))
    monkeypatch.setattr(tensorflow_bundle, "MAX_FILE", 100)
    with pytest.raises(ModelError, match="larger than"), open_bundle(tmp_path / "m"):
        pass


@pytest.mark.parametrize("name", ["one", *COUNTS])
def test_anything_else_is_one_message(name: str, tmp_path: Path) -> None:
    """Half a second of what ten minutes of `python -m tests.interop.mutations` do, on the same cases."""
    original = (HERE / f"{name}.index").read_bytes()
    for case in range(60):
        mutated(original, case, tmp_path / "m.index")
