"""Other programs that run the same model folder: transformers, ONNX Runtime and OpenVINO.

Each is imported at first use; one that is not installed takes no part. All take a padded batch and
give the last hidden states (B, L, H).
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from albertine.core.devices import fast_bfloat16
from albertine.core.openvino_core import openvino_core
from albertine.errors import RunError

Batch = Mapping[str, Tensor]
Run = Callable[[Batch], Tensor]
NAMES = ("input_ids", "attention_mask", "token_type_ids")
TRAINED = {"albert": "AlbertForPreTraining", "bert": "BertForPreTraining"}
"""The classes of transformers that do our training step, by model_type."""


@dataclass(frozen=True)
class Peer:
    """A program in one number format.

    Attributes:
        name: program, format and manner. family: the program.
        build: from a model folder, processors to use and the batches that will come, what runs a batch.
        slow: takes minutes to prepare.
    """

    name: str
    family: str
    build: Callable[[Path, int, list[Batch]], Run]
    slow: bool = False


class _Bare(nn.Module):
    """An encoder of transformers that gives its last hidden states alone."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> Tensor:
        given = {"attention_mask": attention_mask, "token_type_ids": token_type_ids}
        out: Tensor = self.model(input_ids, **given).last_hidden_state
        return out


def _theirs(folder: Path, **given: Any) -> _Bare:
    from transformers import AutoModel

    with _quietly():
        try:
            model = AutoModel.from_pretrained(folder, add_pooling_layer=False, **given)
        except TypeError:  # RoFormer's has no pooler that could be left out
            model = AutoModel.from_pretrained(folder, **given)
        return _Bare(model.eval())


def pretraining_peer(folder: Path) -> nn.Module:
    """`AlbertForPreTraining` or `BertForPreTraining` as it comes, whichever the folder's model is.

    Raises:
        RunError: transformers is not installed, or the model is neither ALBERT nor BERT.
    """
    kind = json.loads((folder / "config.json").read_text(encoding="utf-8"))["model_type"]
    if kind not in TRAINED:
        raise RunError(
            f"only ALBERT and BERT have a peer whose training step is the same, and this encoder is `{kind}`",
            remedy="Name a preset such as albert-base-v2 or bert-base",
        )
    try:
        import transformers
    except ImportError as error:
        raise RunError(
            "needs transformers to compare with", remedy="pip install 'albertine[bench]'"
        ) from error
    given = {"classifier_dropout_prob": 0.0} if kind == "albert" else {}
    with _quietly():
        model: nn.Module = getattr(transformers, TRAINED[kind]).from_pretrained(folder, **given)
    return model.train()


def _transformers(dtype: torch.dtype, compiled: bool) -> Callable[[Path, int, list[Batch]], Run]:
    def build(folder: Path, threads: int, batches: list[Batch]) -> Run:
        model: Any = _theirs(folder, dtype=dtype)
        if compiled:
            model = torch.compile(model)

        def run(batch: Batch) -> Tensor:
            with torch.inference_mode():
                out: Tensor = model(**batch)
                return out

        return run

    return build


def _onnxruntime(folder: Path, threads: int, batches: list[Batch]) -> Run:
    import onnxruntime

    with tempfile.TemporaryDirectory() as scratch, _quietly():
        path = Path(scratch) / "model.onnx"
        model = _theirs(folder, attn_implementation="eager")
        moving = {name: {0: "batch", 1: "length"} for name in NAMES}
        example = tuple(batches[0][name] for name in NAMES)
        torch.onnx.export(
            model,
            example,
            str(path),
            input_names=list(NAMES),
            output_names=["hidden"],
            dynamic_axes=moving,
            dynamo=False,
        )
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def run(batch: Batch) -> Tensor:
        given = {name: batch[name].numpy() for name in NAMES}
        return torch.from_numpy(session.run(["hidden"], given)[0])

    return run


def _openvino(precision: str) -> Callable[[Path, int, list[Batch]], Run]:
    def build(folder: Path, threads: int, batches: list[Batch]) -> Run:
        import openvino

        with _quietly():
            try:
                bare = _theirs(folder, attn_implementation="sdpa")
            except ValueError:  # RoFormer's attention is written in one way only
                bare = _theirs(folder, attn_implementation="eager")
            model = openvino.convert_model(
                bare,
                example_input={name: batches[0][name] for name in NAMES},
            )
            if precision == "int8":
                import nncf

                samples = [{name: b[name].numpy() for name in NAMES} for b in batches]
                model = nncf.quantize(
                    model,
                    nncf.Dataset(samples),
                    model_type=nncf.ModelType.TRANSFORMER,
                    subset_size=len(samples),
                )
        hint = "f32" if precision == "f32" or not fast_bfloat16(torch.device("cpu")) else "bf16"
        compiled = openvino_core().compile_model(
            model,
            "CPU",
            {
                "INFERENCE_PRECISION_HINT": hint,
                "PERFORMANCE_HINT": "LATENCY",
                "INFERENCE_NUM_THREADS": threads,
            },
        )
        request = compiled.create_infer_request()

        def run(batch: Batch) -> Tensor:
            found = request.infer({name: batch[name].numpy() for name in NAMES}, share_inputs=True)
            return torch.from_numpy(np.array(found[0]))

        return run

    return build


def peers() -> tuple[Peer, ...]:
    """All that there are for this processor; bfloat16 only where it has it."""
    found = [Peer("transformers float32", "transformers", _transformers(torch.float32, False))]
    found.append(
        Peer("transformers float32 compiled", "transformers", _transformers(torch.float32, True), True)
    )
    found.append(Peer("ONNX Runtime float32", "onnxruntime", _onnxruntime))
    found.append(Peer("OpenVINO float32", "openvino", _openvino("f32")))
    if fast_bfloat16(torch.device("cpu")):
        half = torch.bfloat16
        found.append(Peer("transformers bfloat16", "transformers", _transformers(half, False)))
        found.append(Peer("transformers bfloat16 compiled", "transformers", _transformers(half, True), True))
        found.append(Peer("OpenVINO bfloat16", "openvino", _openvino("bf16")))
    found.append(Peer("OpenVINO int8", "openvino", _openvino("int8")))
    return tuple(found)


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Without the notes that converters print."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        nowhere = io.StringIO()
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(nowhere),
            contextlib.redirect_stderr(nowhere),  # where transformers draws its bars
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
