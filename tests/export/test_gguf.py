"""GGUF: which encoders are architectures of llama.cpp, and the content of the file, read by gguf-py.

llama.cpp itself is run by `benchmarks.foreign_runtimes`: the same tokens and states, as exactly as its GELU
is (on processors a table of half-precision numbers, unless GGML_GELU_FP16 is taken out).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from albertine.errors import ModelError
from albertine.export.export_model import export
from albertine.export.formats import ExportOptions
from albertine.export.gguf import read_llama
from albertine.export.llama_vocabulary import LEAST_SCORE, unlike, vocabulary
from albertine.interop.gguf.file import read_gguf, write_gguf
from albertine.interop.huggingface.folders import save_model
from albertine.tokenizers.added_tokens import AddedToken
from albertine.tokenizers.load import load_tokenizer
from albertine.tokenizers.sentencepiece_proto import PieceType
from albertine.tokenizers.wordpiece import WordPieceTokenizer
from tests.export import saved

gguf = pytest.importorskip("gguf")
KINDS: dict[str, dict[str, Any]] = {
    "bert": {"embedding_size": 24},
    "jina-bert-v3": {"embedding_size": 24, "positions": "rotary", "rotary_base": 700.0},
    "modern-bert": {
        "positions": "rotary",
        "norm": "pre",
        "feed_forward": "gated",
        "biases": False,
        "type_vocab_size": 0,
    },
}


def written(source: Path, folder: Path, head: str = "task") -> tuple[Any, dict[str, Any]]:
    """The file as gguf-py reads it, and its entry in the report."""
    export(source, folder, ["gguf"], head=head, options=ExportOptions())
    report = json.loads((folder / "export.json").read_text())["files"]["model.gguf"]
    return gguf.GGUFReader(folder / "model.gguf"), report


@pytest.mark.parametrize("kind", KINDS)
def test_each_architecture_is_read_by_gguf_py_and_has_the_tensors_that_it_names(
    kind: str, tmp_path: Path
) -> None:
    save_model(saved.model(**KINDS[kind]), saved.tokenizer(), tmp_path / "m")
    found, report = written(tmp_path / "m", tmp_path / "out", "features")
    values = {name: field.contents() for name, field in found.fields.items()}
    assert values["general.architecture"] == report["architecture"] == kind
    assert values[f"{kind}.block_count"] == 3 and values[f"{kind}.attention.causal"] is False
    assert f"{kind}.pooling_type" not in values
    arch = next(arch for arch, name in gguf.MODEL_ARCH_NAMES.items() if name == kind)
    known = {
        gguf.TENSOR_NAMES[part].format(bid=block) for part in gguf.MODEL_TENSORS[arch] for block in range(3)
    }
    names = {tensor.name for tensor in found.tensors}
    assert {name.rpartition(".")[0] for name in names} <= known
    assert (f"{kind}.rope.freq_base" in values) == (kind != "bert")
    assert report["greatest_difference"] < 1e-5 and len(report["shapes"]) >= 12


def test_every_depth_has_the_shared_block_and_rows_are_rows(tmp_path: Path) -> None:
    model = saved.model(**KINDS["bert"])
    save_model(model, saved.tokenizer(), tmp_path / "m")
    found, _ = written(tmp_path / "m", tmp_path / "out", "features")
    tensors = {tensor.name: tensor for tensor in found.tensors}
    wanted = model.encoder.feed_forward[0].intermediate.weight.detach().numpy()
    for depth in range(3):
        one = tensors[f"blk.{depth}.ffn_up.weight"]
        assert np.array_equal(one.data, wanted) and one.shape.tolist() == list(wanted.shape[::-1])
        assert one.data_offset % 32 == 0
    queries = tensors["blk.1.attn_q.bias"].data
    assert np.array_equal(queries, model.encoder.attention[0].query.bias.detach().numpy())


def test_an_output_matrix_is_no_part_of_the_file(tmp_path: Path) -> None:
    """llama.cpp predicts no words: states are the same whatever the head has."""
    for name, changes in KINDS.items():
        save_model(saved.model(**changes, output="own"), saved.tokenizer(), tmp_path / name)
        _, report = written(tmp_path / name, tmp_path / f"out {name}", "features")
        assert report["greatest_difference"] < 1e-5


def test_modern_berts_factors_are_multiplied_and_its_three_projections_are_one(tmp_path: Path) -> None:
    model = saved.model(**KINDS["modern-bert"])
    save_model(model, saved.tokenizer(), tmp_path / "m")
    found, _ = written(tmp_path / "m", tmp_path / "out", "features")
    tensors = {tensor.name: np.array(tensor.data) for tensor in found.tensors}
    embeddings, block = model.encoder.embeddings, model.encoder.attention[0]
    assert embeddings.mapping is not None
    product = (embeddings.word.weight @ embeddings.mapping.weight.T).detach().numpy()
    assert np.abs(tensors["token_embd.weight"] - product).max() < 1e-5
    joined = torch.cat([block.query.weight, block.key.weight, block.value.weight]).detach().numpy()
    assert np.array_equal(tensors["blk.2.attn_qkv.weight"], joined)
    assert "blk.0.attn_norm.weight" not in tensors and "blk.1.attn_norm.weight" in tensors


def test_a_classifier_is_berts_pooler_and_one_layer(tmp_path: Path) -> None:
    source = saved.classifier(tmp_path / "m", **KINDS["bert"])
    found, report = written(source, tmp_path / "out")
    names = {tensor.name for tensor in found.tensors}
    assert {"cls.weight", "cls.bias", "cls.output.weight", "cls.output.bias"} <= names
    assert found.fields["bert.pooling_type"].contents() == 4
    assert found.fields["bert.classifier.output_labels"].contents() == ["x", "y", "z"]
    assert report["greatest_difference"] < 1e-5


def test_a_vector_is_the_mean_or_the_first(tmp_path: Path) -> None:
    for pooling, number in (("mean", 1), ("cls", 2)):
        source = saved.embedder(tmp_path / pooling, pooling, True, **KINDS["bert"])  # type: ignore[arg-type]
        found, report = written(source, tmp_path / f"out {pooling}")
        assert found.fields["bert.pooling_type"].contents() == number
        assert report["greatest_difference"] < 1e-5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "embeddings of 8 that are normalised and then mapped to 24, where llama.cpp normalises last"),
        ({"embedding_size": 24, "hidden_act": "gelu"}, "the erf form of GELU"),
        ({"embedding_size": 24, "hidden_act": "relu"}, "it has relu"),
        ({"embedding_size": 24, "hidden_act": "relu2"}, "it has relu2"),
        ({"embedding_size": 24, "head_gate": True}, "it has head_gate"),
        ({"embedding_size": 24, "residual_factor": 0.5}, "it has residual_factor 0.5"),
        ({"embedding_size": 24, "qk_norm": True}, "qk_norm"),
        ({"embedding_size": 24, "embedding_mapping": "always"}, "embeddings of 24 that are normalised and"),
        ({"embedding_size": 24, "feed_forward": "gated"}, "feed_forward gated"),
        ({"positions": "relative", "embedding_size": 24}, "positions relative"),
    ],
)
def test_what_is_none_of_its_encoders_is_refused_by_name(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    save_model(saved.model(**changes), saved.tokenizer(), tmp_path / "m")
    with pytest.raises(ModelError, match=message):
        export(tmp_path / "m", tmp_path / "out", ["gguf"], head="features")
    assert not (tmp_path / "out").exists()


def test_heads_that_it_lacks_are_refused(tmp_path: Path) -> None:
    save_model(saved.model(**KINDS["bert"]), saved.tokenizer(), tmp_path / "m")
    with pytest.raises(ModelError, match="answers `fill-mask`, for which llama"):
        export(tmp_path / "m", tmp_path / "out", ["gguf"])
    source = saved.classifier(tmp_path / "mean", "mean", **KINDS["bert"])
    with pytest.raises(ModelError, match="answers `classify`"):
        export(source, tmp_path / "out", ["gguf"])
    source = saved.classifier(tmp_path / "rotary", **KINDS["jina-bert-v3"])
    with pytest.raises(ModelError, match="for BERT's block alone"):
        export(source, tmp_path / "out", ["gguf"])
    save_model(saved.model(**KINDS["bert"]), None, tmp_path / "mute")
    with pytest.raises(ModelError, match="has no tokenizer"):
        export(tmp_path / "mute", tmp_path / "out", ["gguf"], head="features")


def test_wordpieces_carry_the_mark_at_the_beginning_of_a_word() -> None:
    metadata = vocabulary(saved.tokenizer(), len(saved.PIECES) + 2)
    tokens = metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    pairs = dict(zip(saved.PIECES, tokens, strict=False))
    assert (pairs["the"], pairs["##ing"], pairs["[CLS]"], pairs["北"]) == ("▁the", "ing", "[CLS]", "▁北")
    types = metadata["tokenizer.ggml.token_type"]
    assert isinstance(types, np.ndarray)
    assert types[1] == PieceType.UNKNOWN and types[[0, 2, 3, 4]].tolist() == [PieceType.CONTROL] * 4
    assert types[-2:].tolist() == [PieceType.UNUSED] * 2 and len(set(tokens)) == len(tokens)
    cased = vocabulary(WordPieceTokenizer(saved.PIECES, lower=False), len(saved.PIECES))
    assert metadata["tokenizer.ggml.normalizer.lowercase"] is True
    assert cased["tokenizer.ggml.normalizer.strip_accents"] is False
    with pytest.raises(ModelError, match="Chinese words whole"):
        vocabulary(WordPieceTokenizer(saved.PIECES, chinese=False), len(saved.PIECES))
    with pytest.raises(ModelError, match=r"pieces were added \(\[E1\]\), and llama.cpp would cut them"):
        vocabulary(WordPieceTokenizer([*saved.PIECES, "[E1]"], whole=[AddedToken("[E1]")]), 99)
    with pytest.raises(ModelError, match="does not distinguish: `▁b`"):
        vocabulary(WordPieceTokenizer([*saved.PIECES, "##▁b"]), len(saved.PIECES) + 1)


def test_user_defined_tokens_are_plain_ones_that_win(released_english: Path) -> None:
    """llama.cpp would cut a text at them first, and begin a word behind each."""
    tokenizer: Any = load_tokenizer(released_english)
    metadata: Any = vocabulary(tokenizer, tokenizer.vocab_size + 1)
    defined = [i for i, piece in enumerate(tokenizer.proto.pieces) if piece.type is PieceType.USER_DEFINED]
    assert defined
    types, scores = metadata["tokenizer.ggml.token_type"], metadata["tokenizer.ggml.scores"]
    normal = [i for i, piece in enumerate(tokenizer.proto.pieces) if piece.type is PieceType.NORMAL]
    for i in set(defined) - tokenizer.special_ids:
        size = len(tokenizer.id_to_piece(i).encode())
        assert types[i] == PieceType.NORMAL
        assert scores[i] == pytest.approx(size * scores[normal].max() - 0.1)
    assert scores[-1] == LEAST_SCORE and types[-1] == PieceType.UNUSED
    assert metadata["tokenizer.ggml.model"] == "t5" and metadata["tokenizer.ggml.add_eos_token"] is True
    assert "small letters and no accents" in unlike(tokenizer)[0] and not unlike(saved.tokenizer())


@pytest.fixture
def released_english() -> Path:
    from albertine.core import released

    return released.FOLDER / "albertine-mini-en"


def test_values_of_every_kind_come_back(tmp_path: Path) -> None:
    values: dict[str, Any] = {"a": 3, "b": 0.5, "c": True, "d": "北", "e": ["x", ""]}
    arrays = {
        "f": np.arange(3, dtype=np.int32),
        "g": np.ones(2, np.float32),
        "h": np.arange(5, dtype=np.uint8),
    }
    tensors = {"t": np.arange(6, dtype=np.float32).reshape(2, 3), "u": np.ones(1, np.float32)}
    write_gguf(tmp_path / "x.gguf", values | arrays, tensors)
    found = read_gguf(tmp_path / "x.gguf")
    assert {name: found.values[name] for name in values} == values
    assert all(np.array_equal(found.values[name], x) for name, x in arrays.items())
    assert all(np.array_equal(found.tensors[name], x) for name, x in tensors.items())
    theirs = gguf.GGUFReader(tmp_path / "x.gguf")
    assert theirs.fields["d"].contents() == "北" and theirs.fields["f"].contents() == [0, 1, 2]
    assert np.array_equal(theirs.tensors[0].data, tensors["t"])


def test_a_damaged_file_is_refused_in_bounded_time(tmp_path: Path) -> None:
    save_model(saved.model(**KINDS["bert"]), saved.tokenizer(), tmp_path / "m")
    export(tmp_path / "m", tmp_path / "out", ["gguf"], head="features")
    whole = (tmp_path / "out" / "model.gguf").read_bytes()
    assert read_llama(tmp_path / "out" / "model.gguf").model.config.num_hidden_layers == 3
    file = tmp_path / "x.gguf"
    lies = {8: 1 << 60, 16: 1 << 60, 24: 1 << 50}  # tensors, values, the length of the first name
    broken = [whole[:size] for size in (0, 3, 20, 500, 3000, len(whole) - 40)]
    broken += [whole[:at] + lie.to_bytes(8, "little") + whole[at + 8 :] for at, lie in lies.items()]
    broken += [b"GGML" + whole[4:], whole[:4] + b"\x02" + whole[5:]]
    for data in broken:
        file.write_bytes(data)
        with pytest.raises(ModelError, match="is not a whole GGUF file"):
            read_gguf(file)


def test_special_tokens_have_their_ids_and_accents_their_setting() -> None:
    metadata = vocabulary(saved.tokenizer(), len(saved.PIECES))
    ids = {"bos": 2, "eos": 3, "unknown": 1, "seperator": 3, "padding": 0, "cls": 2, "mask": 4}
    assert {name: metadata[f"tokenizer.ggml.{name}_token_id"] for name in ids} == ids
    for lower, accents, strips in ((True, None, True), (True, False, False), (False, True, True)):
        tokenizer = WordPieceTokenizer(saved.PIECES, lower=lower, strip_accents=accents)
        metadata = vocabulary(tokenizer, len(saved.PIECES))
        assert metadata["tokenizer.ggml.normalizer.strip_accents"] is strips


def test_a_sentencepiece_vocabulary_takes_its_normalisation_along(released_english: Path) -> None:
    tokenizer: Any = load_tokenizer(released_english)
    metadata: Any = vocabulary(tokenizer, tokenizer.vocab_size)
    proto = tokenizer.proto
    assert proto.charsmap and metadata["tokenizer.ggml.precompiled_charsmap"].tobytes() == proto.charsmap
    assert metadata["tokenizer.ggml.add_space_prefix"] is proto.add_dummy_prefix
    assert metadata["tokenizer.ggml.remove_extra_whitespaces"] is proto.remove_extra_whitespaces
