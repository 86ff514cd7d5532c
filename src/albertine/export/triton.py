"""A model repository of Triton Inference Server, by its Python backend: `albertine.serving.triton` answers.

Formats: triton-inference-server/server, docs/user_guide/model_repository.md and model_configuration.md;
triton-inference-server/common, protobuf/model_config.proto; triton-inference-server/python_backend,
README.md.
"""

from __future__ import annotations

import json
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

from albertine import __version__
from albertine.export.applications import CopiedModel, in_shell
from albertine.tasks.classify import Classify

NEEDS: tuple[str, ...] = ()  # Triton's own modules are there in its processes alone
EXTRA = "serve"
HEADS = ("task", "embed")
FILE = '''"""$name for Triton's Python backend; written by albertine $version."""

from pathlib import Path

import triton_python_backend_utils as pb_utils

from albertine.serving.triton import TritonModel


class TritonPythonModel:
    def initialize(self, args):
        self.model = TritonModel(Path(__file__).resolve().parent / "model", args, pb_utils)

    def execute(self, requests):
        return self.model.execute(requests)

    def finalize(self):
        self.model.close()
'''
CONFIG = """\
# $name for Triton; its folder has this name too. See README.md.
name: "$name"
backend: "python"
max_batch_size: 64
input [
$inputs
]
output [
$outputs
]
# Requests that wait go to the engine together, which packs them without padding.
dynamic_batching { }
instance_group [
  # KIND_GPU computes on the GPU of the instance.
  { kind: KIND_CPU count: 1 }
]
# As the options of `albertine serve`: device, precision, batch_tokens, runtime, exit, layers,
# auto_truncate, queue_tokens, deadline_seconds.
parameters { key: "precision" value { string_value: "auto" } }
"""
README = """\
# $name for Triton Inference Server

Written by albertine $version from $source ($digest). This folder is a model repository. `model.py` only calls
the package: answers, limits and errors are those of `albertine serve`.

```sh
pip install 'albertine[serve,$extra]'
tritonserver --model-repository FOLDER-OF-THIS-FILE
curl http://127.0.0.1:8000/v2/health/ready
curl http://127.0.0.1:8000/v2/models/$name/infer -d $body
```

- `pip` is that of the image of Triton (`nvcr.io/nvidia/tritonserver`, Python 3.11 or later), for example in a
  Dockerfile that begins with it.
- Inputs: $of_inputs. Outputs: $of_outputs.
- An error is one of its request alone: `INVALID_ARG` where the request is not valid, such as a text that is
  too long, `UNAVAILABLE` where it may be sent again.
- To put the model into a repository of your own, move the folder `$name` there.
- The files are tested against the documented interface of the Python backend, not in a Triton server.
"""


class Tensor(NamedTuple):
    """An input or output of config.pbtxt.

    Attributes:
        size: strings or numbers of a row. words: for the README.
    """

    name: str
    kind: str
    size: int
    words: str
    optional: bool = False

    def text(self) -> str:
        """As text of the protobuf message ModelInput or ModelOutput."""
        optional = " optional: true" if self.optional else ""
        return f'  {{ name: "{self.name}" data_type: {self.kind} dims: [ {self.size} ]{optional} }}'


def model_place(name: str) -> str:
    """The folder of the model's copy, beside model.py."""
    return f"{name}/1/model"


def write(model: CopiedModel, folder: Path) -> list[str]:
    """Write NAME/config.pbtxt, NAME/1/model.py and README.md.

    Raises:
        ModelError: the model has no task that the server offers.
    """
    inputs, outputs, example = tensors_of(model)
    body = {
        "inputs": [
            {"name": name, "shape": [1, 1], "datatype": "BYTES", "data": [text]}
            for name, text in example.items()
        ]
    }
    words = {
        "name": model.name,
        "version": __version__,
        "source": model.source,
        "digest": model.digest[:12],
        "extra": model.extra,
        "inputs": ",\n".join(one.text() for one in inputs),
        "outputs": ",\n".join(one.text() for one in outputs),
        "of_inputs": "; ".join(f"`{one.name}`, {one.words}" for one in inputs),
        "of_outputs": "; ".join(f"`{one.name}`, {one.words}" for one in outputs),
        "body": in_shell(body),
    }
    own = folder / model.name
    for path, text in (
        (own / "1" / "model.py", FILE),
        (own / "config.pbtxt", CONFIG),
        (folder / "README.md", README),
    ):
        path.write_text(Template(text).substitute(words), encoding="utf-8")
    return ["start it where Triton is installed: tritonserver --model-repository FOLDER"]


def tensors_of(model: CopiedModel) -> tuple[list[Tensor], list[Tensor], dict[str, str]]:
    """The inputs and outputs of a model, and an example: a text by the name of each input.

    They are those that `albertine.serving.triton` reads and gives.
    """
    text, string = Tensor("TEXT", "TYPE_STRING", 1, "a text"), "TYPE_STRING"
    if model.answers == "embed":
        size = model.predictor.embed(["a"]).shape[1]
        vector = Tensor("VECTOR", "TYPE_FP32", size, f"its vector of {size} numbers and length 1")
        return [text], [vector], {"TEXT": "a text"}
    if model.answers == "classify":
        return _classes(model, text)
    path, body = model.example
    request = Tensor("REQUEST", string, 1, f"the JSON body of `POST {path}` of `albertine serve`")
    response = Tensor("RESPONSE", string, 1, "the JSON of the answer")
    example: dict[str, Any] = body
    return [request], [response], {"REQUEST": json.dumps(example, ensure_ascii=False)}


def _classes(model: CopiedModel, text: Tensor) -> tuple[list[Tensor], list[Tensor], dict[str, str]]:
    family = model.predictor.family
    assert isinstance(family, Classify)
    count = len(family.labels) or 1
    inputs, example = [text], {"TEXT": "a text"}
    if family.pairs is not False:
        optional = family.pairs is None and family.pooling != "compared"
        words = "the second text of a pair" + (", if there is one" if optional else "")
        inputs.append(Tensor("PAIR", "TYPE_STRING", 1, words, optional))
    if family.pairs:
        example["PAIR"] = "another text"
    labels = Tensor("LABEL", "TYPE_STRING", count, "the names of all classes, the likeliest first")
    scores = Tensor("SCORE", "TYPE_FP32", count, "their probabilities")
    if not family.labels:
        labels, scores = labels._replace(words="the word `score`"), scores._replace(words="the score")
    return inputs, [labels, scores], example
