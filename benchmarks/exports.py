"""What exports cost and save: ONNX, OpenVINO and archives of torch, each beside transformers, its usual ONNX
with plain dynamic quantisation, its model in OpenVINO and our own kernels.

    python -m benchmarks.exports --save
    python -m benchmarks.exports albertine-mini-en --rounds 3

The same weights and the same tokens for everyone, all in turn, round by round; ratios are medians of those of
single rounds. Every way gives the last hidden states, and its cosine is the least of a token's vector with
that of our float32. The preset has random weights. 8 bits of OpenVINO are
measured over the demo's books. "plain dynamic quantisation" is what Optimum does:
`torch.onnx` of the model of transformers, then `quantize_dynamic`.
"""

from __future__ import annotations

import argparse
import logging
import os
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import albertine
from albertine.bench.inputs import Inputs, inputs, lengths_of
from albertine.bench.interleaved import compete
from albertine.bench.machine import describe
from albertine.bench.peers import NAMES, peers
from albertine.core.devices import fast_bfloat16
from albertine.core.precision import InferencePrecision
from albertine.errors import ModelError
from albertine.export.export_model import export
from albertine.export.formats import ExportOptions
from albertine.export.onnx import session_of
from albertine.export.onnx_int8 import products, quantized
from albertine.export.source_model import opened
from albertine.interop.model_names import model_folder
from benchmarks.keep import keep

MODELS = ("albert-base-v2", "albertine-mini-en")
SAMPLE = Path(__file__).parents[1] / "data" / "demo" / "english.tar.xz"
CALLED = {"onnx": "ONNX", "openvino": "OpenVINO", "torch": "torch"}
SHAPES = {"single": (1, 128, 1.0), "dense": (8, 128, 1.0), "varied": (32, 128, 0.48)}
"""Sequences, the longest of them in tokens, and the share of the padded batch that is real."""
AGAINST = (
    "transformers float32",
    "transformers, ONNX, plain dynamic quantisation",
    "OpenVINO float32",
    "OpenVINO int8",
    "albertine float32",
    "albertine int8",
)
Way = Callable[[Inputs], Tensor]


def folder_of(name: str, scratch: Path) -> Path:
    """A model folder: that of a preset gets random weights."""
    if name not in albertine.presets():
        return model_folder(name)
    folder = scratch / name
    # The vocabulary is smaller than the preset's; it reads the sample that 8-bit activations are measured by.
    albertine.save(albertine.load(name, random=True), albertine.load_tokenizer(MODELS[1]), folder)
    return folder


def formats() -> dict[str, ExportOptions]:
    """The inputs of every format."""
    half = fast_bfloat16(torch.device("cpu"))
    return {
        "onnx": ExportOptions(int8=True, packed=True),
        "openvino": ExportOptions(int8=True, bfloat16=half, sample=(SAMPLE,)),
        "torch": ExportOptions(packed=True),
    }


def exports(folder: Path, scratch: Path, threads: int) -> tuple[dict[str, Way], dict[str, Any]]:
    """Our exports, and a record of each: of a refused 8-bit one, the reason."""
    ways, record = dict[str, Way](), dict[str, Any]()
    for to, options in formats().items():
        out = scratch / to
        try:
            report = export(folder, out, [to], head="features", options=options).report
        except ModelError as error:
            exact = replace(options, int8=False, sample=())
            report = export(folder, out, [to], head="features", options=exact).report
            small, counts = _in_8_bits(to, folder, out, scratch / "refused")
            name = f"export {CALLED[to]} int8"
            ways[name] = _way(small, "int8", False, threads)
            record[name] = {"bytes": _size(small), **counts, "refused": error.what}
        for file, entry in report["files"].items():
            packed = entry["layout"] == "packed"
            name = f"export {CALLED[to]} {entry['precision']}{', packed' if packed else ''}"
            ways[name] = _way(out / file, entry["precision"], packed, threads)
            record[name] = {key: entry[key] for key in ("bytes", "greatest_difference", "least_cosine")}
            record[name] |= {key: entry[key] for key in ("products", "quantised") if key in entry}
    return ways, record


def _in_8_bits(to: str, folder: Path, out: Path, stem: Path) -> tuple[Path, dict[str, Any]]:
    """A float32 export in 8-bit integers all the same, and what was counted."""
    if to == "onnx":
        small = stem.with_suffix(".onnx")
        return small, quantized(out / "onnx" / "model.onnx", small)
    from albertine.export import openvino, openvino_int8

    rows = openvino_int8.calibration(opened(folder, "features"), [SAMPLE])
    model, report = openvino_int8.quantized(out / openvino.FOLDER / "openvino_model.xml", rows[::2])
    openvino.save(model, small := stem.with_suffix(".xml"))
    return small, report


def _size(file: Path) -> int:
    return sum(one.stat().st_size for one in (file, file.with_suffix(".bin")) if one.is_file())


def _way(file: Path, precision: str, packed: bool, threads: int) -> Way:
    """Runs an exported file by its runtime, in this process."""
    if file.suffix == ".pt2":
        return _archive(file, packed)
    if file.suffix == ".xml":
        return _openvino(file, precision, threads)
    return (_packed if packed else _padded)(file, threads)


def _archive(file: Path, packed: bool) -> Way:
    program = torch.export.load(file).module()

    def run(given: Inputs) -> Tensor:
        batch = given.packed
        arguments = [given.padded[name] for name in NAMES]
        if packed:
            arguments = [batch.input_ids, batch.token_type_ids, batch.cu_seqlens.long()]
        with torch.no_grad():
            states: Tensor = program(*arguments)[0]
        return states

    return run


def _openvino(file: Path, precision: str, threads: int) -> Way:

    from albertine.export.openvino import OpenVinoModel

    model = OpenVinoModel(file, "bf16" if precision == "bfloat16" else "f32", threads)

    def run(given: Inputs) -> Tensor:
        found = model({name: x.numpy() for name, x in given.padded.items()})
        return torch.from_numpy(found["last_hidden_state"])

    return run


def _padded(file: Path, threads: int) -> Way:
    session = session_of(file, threads)
    known = {one.name for one in session.get_inputs()}

    def run(given: Inputs) -> Tensor:
        arguments = {name: x.numpy() for name, x in given.padded.items() if name in known}
        return torch.from_numpy(session.run(None, arguments)[0])

    return run


def _packed(file: Path, threads: int) -> Way:
    session = session_of(file, threads)
    known = {one.name for one in session.get_inputs()}

    def run(given: Inputs) -> Tensor:
        batch = given.packed
        arguments = {
            "input_ids": batch.input_ids.numpy(),
            "token_type_ids": batch.token_type_ids.numpy(),
            "cu_seqlens": batch.cu_seqlens.long().numpy(),
        }
        found = session.run(None, {name: x for name, x in arguments.items() if name in known})
        return torch.from_numpy(found[0])

    return run


class Bare(torch.nn.Module):
    """A model of transformers that gives its last hidden states alone."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> Tensor:
        states: Tensor = self.model(input_ids, attention_mask, token_type_ids).last_hidden_state
        return states


def usual(folder: Path, scratch: Path, threads: int) -> tuple[dict[str, Way], dict[str, Any]]:
    """transformers' model through `torch.onnx`, in float32 and as plain dynamic quantisation leaves it."""
    from onnxruntime.quantization import quantize_dynamic
    from transformers import AutoModel

    model = Bare(AutoModel.from_pretrained(folder, attn_implementation="eager").eval())
    ids, mask = torch.full((3, 7), 5), torch.ones(3, 7, dtype=torch.long)
    mask[1, 4:] = 0
    batch, length = torch.export.Dim("batch"), torch.export.Dim("length")
    moving = {name: {0: batch, 1: length} for name in NAMES}
    files = {"": scratch / "usual.onnx", ", plain dynamic quantisation": scratch / "usual8.onnx"}
    plain, small = files.values()
    with torch.no_grad():
        example = (ids, mask, torch.zeros_like(ids))
        program = torch.onnx.export(model, example, dynamo=True, dynamic_shapes=moving, verbose=False)
    assert program is not None
    program.save(plain)
    quantize_dynamic(plain, small)
    ways = {f"transformers, ONNX{kind}": _padded(file, threads) for kind, file in files.items()}
    record = {}
    for kind, file in files.items():
        total, integers = products(file)
        size = file.stat().st_size
        record[f"transformers, ONNX{kind}"] = {"bytes": size, "products": total, "quantised": integers}
    return ways, record


def ours(folder: Path) -> dict[str, Way]:
    """Our own kernels, each format with a model of its own, as in use."""
    half: tuple[InferencePrecision, ...] = ("bfloat16",) if fast_bfloat16(torch.device("cpu")) else ()
    return {f"albertine {form}": _own(folder, form) for form in ("float32", *half, "int8")}


def _own(folder: Path, form: InferencePrecision) -> Way:
    model = albertine.load(folder)
    model.precision = form

    @torch.inference_mode()
    def run(given: Inputs) -> Tensor:
        states: Tensor = model.encoder(given.packed).last_hidden
        return states

    return run


def others(folder: Path, threads: int, given: list[Inputs]) -> tuple[dict[str, Way], dict[str, str]]:
    """transformers eagerly, and OpenVINO; what cannot be built is reported and left out."""
    ways: dict[str, Way] = {}
    missing: dict[str, str] = {}
    for peer in peers():
        if peer.slow or peer.family == "onnxruntime":
            continue
        try:
            run = peer.build(folder, threads, [one.padded for one in given])
        except Exception as error:  # a peer's own failure must not keep the others from being measured
            missing[peer.name] = f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"
            continue
        ways[peer.name] = lambda one, run=run: run(one.padded)  # type: ignore[misc]
    return ways, missing


def measured(name: str, rounds: int, threads: int, scratch: Path, shapes: list[str]) -> dict[str, Any]:
    """Everyone on every shape, for one model."""
    folder = folder_of(name, scratch)
    vocabulary = albertine.load(folder).config.vocab_size
    given = [inputs(shape, lengths_of(*SHAPES[shape]), vocabulary) for shape in shapes]
    exported, files = exports(folder, scratch, threads)
    theirs, plain = usual(folder, scratch, threads)
    rest, missing = others(folder, threads, given)
    ways = ours(folder) | exported | theirs | rest
    found = {}
    for one in given:
        calls = {way: (lambda run=run, one=one: run(one)) for way, run in ways.items()}
        contest = compete(calls, rounds, threads, lambda text: None)
        tree = contest.as_dict()
        for way, cosine in _cosines(one, contest.outputs).items():
            tree["runs"][way]["least_cosine"] = cosine
        pairs = [(a, b) for a in exported for b in AGAINST if b in contest.times]
        found[one.name] = {
            "sequences": one.packed.num_sequences,
            "longest": one.packed.max_length,
            "fill": one.fill,
            **tree,
            "ratios": contest.ratios(pairs),
        }
    weights = (folder / "model.safetensors").stat().st_size
    return {"weights": weights, "files": files | plain, "shapes": found, "left_out": missing}


def _cosines(given: Inputs, outputs: Any) -> dict[str, float]:
    real = given.padded["attention_mask"].bool()
    vectors = {way: (x if x.dim() == 2 else x[real]).float() for way, x in outputs.items()}
    right = vectors["albertine float32"]
    return {way: float(F.cosine_similarity(x, right).min()) for way, x in vectors.items()}


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", default=list(MODELS), help="presets, released models, folders")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--shapes", nargs="+", choices=list(SHAPES), default=list(SHAPES))
    parser.add_argument("--save", action="store_true", help="write the result under benchmarks/results")
    arguments = parser.parse_args(words)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(arguments.threads)
    models = {}
    for name in arguments.models:
        with tempfile.TemporaryDirectory() as scratch:
            found = measured(name, arguments.rounds, arguments.threads, Path(scratch), arguments.shapes)
        models[name] = found
        show(name, found)
    if arguments.save:
        result = {"rounds": arguments.rounds, "threads": arguments.threads, "models": models}
        keep("exports", {"machine": describe(), **result})


def show(name: str, found: dict[str, Any]) -> None:
    """Print what was measured."""
    print(f"{name}: weights {found['weights']:,} bytes", flush=True)
    for file, entry in found["files"].items():
        print(f"  {file}: {entry}")
    for shape, measurement in found["shapes"].items():
        print(f"  {shape}{'' if measurement['quiet'] else ' (BUSY: compare nothing)'}")
        for way, row in measurement["runs"].items():
            print(f"    {way}: {row['median_ms']:.1f} ms, least cosine {row['least_cosine']:.5f}")
        for pair, ratio in measurement["ratios"].items():
            print(f"    {pair}: {ratio:.2f}")
    for peer, why in found["left_out"].items():
        print(f"  left out {peer}: {why}")


if __name__ == "__main__":
    main()
