"""ONNX graphs: as exact as their source over many shapes, one copy of each weight, sizes left open, and 8-bit
integers that are counted."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import albertine as package  # noqa: E402
from albertine.errors import ModelError, SettingsError  # noqa: E402
from albertine.export import onnx_int8  # noqa: E402
from albertine.export.formats import ExportOptions  # noqa: E402
from albertine.export.graph import graph_of  # noqa: E402
from albertine.export.onnx import check_copies, constants, runner, save_graph, write  # noqa: E402
from albertine.export.source_model import opened  # noqa: E402
from albertine.export.verify import verify  # noqa: E402
from albertine.inference.graph_heads import Head  # noqa: E402
from albertine.model.sharing import SharingPlan  # noqa: E402
from tests.export.heads import PLANS, head_of  # noqa: E402
from tests.model.builders import model  # noqa: E402


def test_the_release_is_exact_and_verified_over_a_dozen_shapes(exported: Path) -> None:
    files = json.loads((exported / "export.json").read_text())["files"]
    assert set(files) == {
        "onnx/model.onnx",
        "onnx/model_int8.onnx",
        "onnx/model_packed.onnx",
        "onnx/model_packed_int8.onnx",
    }
    for name, file in files.items():
        lengths = {shape["length"] for shape in file["shapes"]}
        assert len(file["shapes"]) >= 12 and {1, 48} <= lengths, name
        assert any(shape["tokens"] < shape["batch"] * shape["length"] for shape in file["shapes"])
        if file["precision"] == "float32":
            assert file["greatest_difference"] <= 1e-5, name
        else:
            assert file["greatest_difference"] > 1e-5 and file["least_cosine"] >= 0.999, name
            assert file["quantised"] / file["products"] >= 70 / 97, name
        assert file["bytes"] == (exported / name).stat().st_size


@pytest.mark.sample(2, keep=["modernbert", "recgpt"])
@pytest.mark.parametrize(
    ("plan", "name", "packed", "opset"),
    [
        ("xlnet", "answer or not", False, 20),
        ("own", "relate", True, 20),
        ("modernbert", "fill-mask", False, 18),
        ("albert", "compare", True, 20),
        ("recgpt", "fill-mask", True, 20),
    ],
)
def test_other_encoders_and_heads(plan: str, name: str, packed: bool, opset: int, tmp_path: Path) -> None:
    """Those whose operations an exporter is likeliest to get wrong: distances that are looked up and the best
    places of a row; subjects as a further input; rotations, gates, and logits tied to the embeddings."""
    changes = PLANS[plan] | ({"plan": SharingPlan.shared(1)} if plan == "xlnet" else {})
    head = head_of(name, model(**changes))  # type: ignore[arg-type]
    save_graph(graph_of(head, packed), tmp_path / "model.onnx", opset)
    assert onnx.load(tmp_path / "model.onnx").opset_import[0].version == opset
    found = verify(head, runner(tmp_path / "model.onnx", 1), packed=packed)
    assert found.exact, found.lines()
    assert all(one.places == 1 for one in found.shapes)
    check_copies(tmp_path / "model.onnx", head)


def initialisers(file: Path) -> dict[str, tuple[int, ...]]:
    return {x.name: tuple(x.dims) for x in onnx.load(file).graph.initializer}


def test_a_shared_weight_is_stored_once(exported: Path, classifier: Path) -> None:
    """Three depths share one block, so there is one matrix of 64 x 128 each way."""
    held = list(initialisers(exported / "onnx" / "model.onnx").values())
    assert held.count((128, 64)) == 1 and held.count((64, 128)) == 1
    assert held.count((64, 64)) == 5  # query, key, value, output, pooler
    head = opened(classifier).head
    weights = sum(x.numel() * 4 for x in head.model.parameters())
    assert constants(exported / "onnx" / "model.onnx") < weights + 4096


def test_a_weight_that_is_written_twice_is_refused(exported: Path, classifier: Path, tmp_path: Path) -> None:
    """What a graph would hold in which every use has its own transposed weight."""
    graph = onnx.load(exported / "onnx" / "model.onnx")
    largest = max(graph.graph.initializer, key=lambda x: len(x.raw_data))
    for i in range(12):
        copy = onnx.TensorProto()
        copy.CopyFrom(largest)
        copy.name = f"copy {i}"
        graph.graph.initializer.append(copy)
    onnx.save(graph, tmp_path / "model.onnx")
    check_copies(exported / "onnx" / "model.onnx", opened(classifier).head)
    with pytest.raises(ModelError, match="more than once"):
        check_copies(tmp_path / "model.onnx", opened(classifier).head)


def test_sizes_are_left_open_and_named(exported: Path) -> None:
    graph = onnx.load(exported / "onnx" / "model.onnx").graph
    axes = {
        x.name: [d.dim_param or d.dim_value for d in x.type.tensor_type.shape.dim]
        for x in (*graph.input, *graph.output)
    }
    assert axes == {
        name: ["batch", "length"] for name in ("input_ids", "attention_mask", "token_type_ids")
    } | {"logits": ["batch", 3]}
    packed = onnx.load(exported / "onnx" / "model_packed.onnx").graph
    assert [x.name for x in packed.input] == ["input_ids", "token_type_ids", "cu_seqlens"]
    assert {x.type.tensor_type.elem_type for x in packed.input} == {onnx.TensorProto.INT64}


def test_padded_and_packed_agree(exported: Path) -> None:
    ids = np.array([[2, 5, 6, 7, 3], [2, 8, 3, 0, 0], [2, 9, 9, 3, 0]])
    mask = (ids != 0).astype(np.int64)
    types = np.zeros_like(ids)
    padded = runner(exported / "onnx" / "model.onnx", 1)(
        {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
    )
    packed = runner(exported / "onnx" / "model_packed.onnx", 1)(
        {
            "input_ids": ids[ids != 0],
            "token_type_ids": types[ids != 0],
            "cu_seqlens": np.array([0, 5, 8, 12]),
        }
    )
    np.testing.assert_allclose(padded["logits"], packed["logits"], atol=1e-5)


def test_nothing_of_this_machine_is_in_the_file(exported: Path) -> None:
    """The exporter writes a stack trace of every operation into it."""
    content = (exported / "onnx" / "model.onnx").read_bytes()
    assert b"stack_trace" not in content and b"albertine/model" not in content


def test_opset_as_requested(tmp_path: Path, exported: Path, classifier: Path) -> None:
    source = opened(classifier)
    with pytest.raises(SettingsError, match="opset 12 is not supported"):
        write(source, tmp_path, ExportOptions(opset=12))
    assert onnx.load(exported / "onnx" / "model.onnx").opset_import[0].version == 20


def test_what_quantises_too_little_is_refused(exported: Path, tmp_path: Path) -> None:
    """A float32 graph under the name of an 8-bit one: the file is removed and the message reports the
    share."""
    file = tmp_path / "model_int8.onnx"
    file.write_bytes((exported / "onnx" / "model.onnx").read_bytes())
    with pytest.raises(ModelError, match=r"only 0 of \d+ matrix products .* 72% is the least"):
        onnx_int8.counted(file)
    assert not file.exists()


@pytest.mark.parametrize("weighted", [False, True])
def test_a_low_share_is_refused_where_a_product_with_a_weight_is_left(weighted: bool, tmp_path: Path) -> None:
    """XLNet's scores of places are a third product of activations; a deep one has 70 of 100 at best."""
    from onnx import helper, numpy_helper

    nodes = [helper.make_node("MatMulInteger", ["x", "w8"], [f"y{i}"]) for i in range(2)]
    nodes += [helper.make_node("MatMul", ["x", "x"], [f"z{i}"]) for i in range(2)]
    if weighted:
        nodes[-1:] = [
            helper.make_node("Transpose", ["w"], ["turned"]),
            helper.make_node("MatMul", ["x", "turned"], ["z1"]),
        ]
    weights = [numpy_helper.from_array(np.zeros((2, 2), np.float32), name) for name in ("w", "w8")]
    file = tmp_path / "model_int8.onnx"
    onnx.save(helper.make_model(helper.make_graph(nodes, "made", [], [], weights)), file)
    if weighted:
        with pytest.raises(ModelError, match="only 2 of 4"):
            onnx_int8.counted(file)
    else:
        assert onnx_int8.counted(file) == {"products": 4, "quantised": 2}
    assert file.exists() is not weighted


def transposed(source: Path, target: Path) -> None:
    """The same graph as other exporters write it: products with weights that a node transposes first."""
    from onnx import helper

    loaded = onnx.load(source)
    nodes = []
    for i, node in enumerate(loaded.graph.node):
        if node.op_type != "Gemm":
            nodes.append(node)
            continue
        x, weight, *bias = node.input
        nodes.append(helper.make_node("Transpose", [weight], [f"turned {i}"], perm=[1, 0]))
        made = node.output[0] if not bias else f"product {i}"
        nodes.append(helper.make_node("MatMul", [x, f"turned {i}"], [made]))
        if bias:
            nodes.append(helper.make_node("Add", [made, bias[0]], list(node.output)))
    del loaded.graph.node[:]
    loaded.graph.node.extend(nodes)
    onnx.save(loaded, target)


def test_without_preprocessing_such_a_graph_is_refused(
    exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pitfall of onnxruntime's `quantize_dynamic`: 1 of 97 products quantised, without a warning."""
    turned = tmp_path / "model.onnx"
    transposed(exported / "onnx" / "model.onnx", turned)
    report = onnx_int8.quantized(turned, tmp_path / "good.onnx")
    assert report["quantised"] / report["products"] >= 70 / 97
    monkeypatch.setattr(
        onnx_int8, "_preprocess", lambda source, target: target.write_bytes(source.read_bytes())
    )
    with pytest.raises(ModelError, match="may be called INT8"):
        onnx_int8.quantized(turned, tmp_path / "bad.onnx")
    assert not (tmp_path / "bad.onnx").exists()


@pytest.mark.parametrize(
    ("machine", "flags", "narrow"),
    [
        ("x86_64", {"avx2"}, True),
        ("x86_64", {"avx2", "avx512f"}, True),
        ("x86_64", {"avx2", "avx_vnni"}, False),
        ("x86_64", {"avx512f", "avx512_vnni"}, False),
        ("aarch64", {"asimddp"}, False),
    ],
)
def test_weights_have_seven_bits_where_sums_overflow(
    machine: str, flags: set[str], narrow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_int8, "cpu_flags", lambda: frozenset(flags))
    monkeypatch.setattr(onnx_int8.platform, "machine", lambda: machine)
    assert onnx_int8.saturates() is narrow


def test_seven_bits_are_written_and_recorded(
    exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_int8, "saturates", lambda: True)
    report = onnx_int8.quantized(exported / "onnx" / "model.onnx", tmp_path / "model.onnx")
    assert report["weight_bits"] == 7
    held = onnx.load(tmp_path / "model.onnx").graph.initializer
    weights = [onnx.numpy_helper.to_array(x) for x in held if x.data_type == onnx.TensorProto.INT8]
    assert weights and max(np.abs(x.astype(int)).max() for x in weights) <= 64


def test_relative_positions_have_no_packed_graph(tmp_path: Path) -> None:
    package.save(model(**PLANS["xlnet"]), None, tmp_path / "xlnet")  # type: ignore[arg-type]
    source = opened(tmp_path / "xlnet", "features")
    with pytest.raises(SettingsError, match="padded graph only"):
        write(source, tmp_path, ExportOptions(packed=True))


def test_a_head_names_its_outputs() -> None:
    """The contract with readers of a folder (docs/decisions/026)."""
    names: dict[str, Head] = {name: head_of(name) for name in ("answer", "answer or not", "relate", "tag")}
    assert {name: list(head.axes) for name, head in names.items()} == {
        "answer": ["start_logits", "end_logits"],
        "answer or not": [
            "start_top_log_probs",
            "start_top_index",
            "end_top_log_probs",
            "end_top_index",
            "cls_logits",
        ],
        "relate": ["subject_logits", "object_logits"],
        "tag": ["logits"],
    }


def test_two_matrices_at_once_stay_float(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that turn the two states of a compared pair: in integers the graph is written, and cannot be
    run."""
    monkeypatch.setattr(onnx_int8, "LEAST_SHARE", 0.5)
    head = head_of("compare")
    save_graph(graph_of(head, packed=False), tmp_path / "model.onnx", 20)
    report = onnx_int8.quantized(tmp_path / "model.onnx", tmp_path / "int8.onnx")
    assert report["quantised"] >= 7 and onnx_int8.left(tmp_path / "int8.onnx") == 1
    found = verify(head, runner(tmp_path / "int8.onnx"))
    assert found.cosine > 0.9
