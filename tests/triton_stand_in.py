"""Triton's side of a Python model: the module `triton_python_backend_utils` as far as models use it, and a
server of one repository that reads config.pbtxt and checks requests and responses against it.

Interface: triton-inference-server/python_backend, README.md, src/resources/triton_python_backend_utils.py and
src/pb_stub.cc; messages: triton-inference-server/common, protobuf/model_config.proto.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory, text_format
from numpy.typing import NDArray

UTILS = "triton_python_backend_utils"
FIELD = descriptor_pb2.FieldDescriptorProto
MESSAGES: dict[str, dict[str, tuple[int, str, bool]]] = {
    "ModelParameter": {"string_value": (1, "string", False)},
    "ModelDynamicBatching": {
        "preferred_batch_size": (1, "int32", True),
        "max_queue_delay_microseconds": (2, "uint64", False),
    },
    "ModelInstanceGroup": {
        "name": (1, "string", False),
        "kind": (4, "Kind", False),
        "count": (2, "int32", False),
        "gpus": (3, "int32", True),
    },
    "ModelInput": {
        "name": (1, "string", False),
        "data_type": (2, "DataType", False),
        "dims": (4, "int64", True),
        "optional": (8, "bool", False),
    },
    "ModelOutput": {
        "name": (1, "string", False),
        "data_type": (2, "DataType", False),
        "dims": (3, "int64", True),
    },
    "ParametersEntry": {"key": (1, "string", False), "value": (2, "ModelParameter", False)},
    "ModelConfig": {
        "name": (1, "string", False),
        "platform": (2, "string", False),
        "backend": (17, "string", False),
        "max_batch_size": (4, "int32", False),
        "input": (5, "ModelInput", True),
        "output": (6, "ModelOutput", True),
        "dynamic_batching": (11, "ModelDynamicBatching", False),
        "instance_group": (7, "ModelInstanceGroup", True),
        "parameters": (14, "ModelConfig.ParametersEntry", True),
    },
}
"""Fields of messages: number, type, whether it is repeated."""
ENUMS = {
    "DataType": {"TYPE_INVALID": 0, "TYPE_INT64": 9, "TYPE_FP32": 11, "TYPE_STRING": 13},
    "Kind": {"KIND_AUTO": 0, "KIND_GPU": 1, "KIND_CPU": 2, "KIND_MODEL": 3},
}
ARRAYS = {"TYPE_INT64": np.int64, "TYPE_FP32": np.float32, "TYPE_STRING": np.object_}


class TritonError:
    UNKNOWN, INTERNAL, NOT_FOUND, INVALID_ARG, UNAVAILABLE, UNSUPPORTED = range(6)

    def __init__(self, message: str, code: int = INTERNAL) -> None:
        assert isinstance(message, str) and isinstance(code, int)
        self._message, self._code = message, code

    def message(self) -> str:
        return self._message

    def code(self) -> int:
        return self._code


class Tensor:
    def __init__(self, name: str, numpy_array: NDArray[Any]) -> None:
        assert isinstance(name, str) and isinstance(numpy_array, np.ndarray)
        if numpy_array.dtype == np.object_:
            assert all(isinstance(one, bytes | str) for one in numpy_array.reshape(-1))
        self._name, self._array = name, numpy_array

    def name(self) -> str:
        return self._name

    def as_numpy(self) -> NDArray[Any]:
        return self._array


class InferenceRequest:
    def __init__(self, inputs: Sequence[Tensor]) -> None:
        self._inputs = list(inputs)

    def inputs(self) -> list[Tensor]:
        return self._inputs


class InferenceResponse:
    def __init__(self, output_tensors: Sequence[Tensor] = (), error: TritonError | None = None) -> None:
        assert all(isinstance(one, Tensor) for one in output_tensors)
        self._tensors, self._error = list(output_tensors), error

    def output_tensors(self) -> list[Tensor]:
        return self._tensors

    def has_error(self) -> bool:
        return self._error is not None

    def error(self) -> TritonError | None:
        return self._error


def get_input_tensor_by_name(inference_request: InferenceRequest, name: str) -> Tensor | None:
    return next((one for one in inference_request.inputs() if one.name() == name), None)


def read_config(text: str) -> dict[str, Any]:
    """config.pbtxt as the JSON that a model is given: by the names of fields, as protobuf reads text; a field
    that is not known, or of another type, is an error."""
    message = message_factory.GetMessageClass(_pool().FindMessageTypeByName("inference.ModelConfig"))
    parsed = text_format.Parse(text, message())
    found: dict[str, Any] = json_format.MessageToDict(parsed, preserving_proto_field_name=True)
    for tensor in (*found["input"], *found["output"]):
        tensor["dims"] = [int(size) for size in tensor["dims"]]  # JSON of protobuf has int64 as text
    return found


def _pool() -> descriptor_pool.DescriptorPool:
    file = descriptor_pb2.FileDescriptorProto(name="model_config.proto", package="inference", syntax="proto3")
    for enum, values in ENUMS.items():
        described = file.enum_type.add(name=enum)
        for value, number in values.items():
            described.value.add(name=value, number=number)
    for name, fields in MESSAGES.items():
        if name == "ParametersEntry":
            continue
        _describe(file.message_type.add(name=name), fields)
    entry = file.message_type[-1].nested_type.add(name="ParametersEntry")
    _describe(entry, MESSAGES["ParametersEntry"])
    entry.options.map_entry = True
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool


def _describe(message: Any, fields: Mapping[str, tuple[int, str, bool]]) -> None:
    for name, (number, kind, repeated) in fields.items():
        label = FIELD.LABEL_REPEATED if repeated else FIELD.LABEL_OPTIONAL
        field = message.field.add(name=name, number=number, label=label)
        if kind in ENUMS or kind in MESSAGES or "." in kind:
            field.type = FIELD.TYPE_ENUM if kind in ENUMS else FIELD.TYPE_MESSAGE
            field.type_name = f".inference.{kind}"
        else:
            field.type = getattr(FIELD, f"TYPE_{kind.upper()}")


class Server:
    """One model of a repository, whose requests and responses fit its config.pbtxt."""

    def __init__(self, config: dict[str, Any], model: Any) -> None:
        self.config, self._model = config, model

    def infer(self, *requests: Mapping[str, Sequence[bytes]]) -> list[InferenceResponse]:
        """The responses to requests that come together, each of inputs with a string for each row."""
        found = self._model.execute([self._request(one) for one in requests])
        assert len(found) == len(requests)
        for given, response in zip(requests, found, strict=True):
            if not response.has_error():
                self._check(response, rows=len(next(iter(given.values()))))
        return list(found)

    def arrays(self, request: Mapping[str, Sequence[bytes]]) -> dict[str, NDArray[Any]]:
        """The outputs of a request without error."""
        (response,) = self.infer(request)
        assert not response.has_error(), response.error().message()  # type: ignore[union-attr]
        return {one.name(): one.as_numpy() for one in response.output_tensors()}

    def _request(self, given: Mapping[str, Sequence[bytes]]) -> InferenceRequest:
        inputs = {one["name"]: one for one in self.config["input"]}
        needed = {name for name, one in inputs.items() if not one.get("optional", False)}
        assert needed <= given.keys() <= inputs.keys()
        tensors = []
        for name, rows in given.items():
            assert len(rows) <= self.config["max_batch_size"]
            shape = (len(rows), *inputs[name]["dims"])
            tensors.append(Tensor(name, np.array(list(rows), np.object_).reshape(shape)))
        return InferenceRequest(tensors)

    def _check(self, response: InferenceResponse, rows: int) -> None:
        outputs = {one["name"]: one for one in self.config["output"]}
        tensors = response.output_tensors()
        assert [one.name() for one in tensors] == list(outputs)
        for one in tensors:
            described = outputs[one.name()]
            assert one.as_numpy().dtype == ARRAYS[described["data_type"]]
            assert one.as_numpy().shape == (rows, *described["dims"])


@contextmanager
def triton(repository: Path, kind: str = "CPU", device: str = "0", **parameters: str) -> Iterator[Server]:
    """The server of the only model in a repository.

    Args:
        kind, device: of its instance. parameters: of config.pbtxt, instead of those in the file.
    """
    (config_file,) = repository.glob("*/config.pbtxt")
    config = read_config(config_file.read_text(encoding="utf-8"))
    assert config["name"] == config_file.parent.name and config["backend"] == "python"
    own = config.setdefault("parameters", {})
    own |= {name: {"string_value": value} for name, value in parameters.items()}
    place = config_file.parent / "1" / "model.py"
    before = sys.modules.get(UTILS)
    sys.modules[UTILS] = _utils()
    try:
        spec = importlib.util.spec_from_file_location("model", place)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        model = module.TritonPythonModel()
        model.initialize(
            {
                "model_config": json.dumps(config),
                "model_instance_kind": kind,
                "model_instance_device_id": device,
                "model_instance_name": f"{config['name']}_0",
                "model_repository": str(config_file.parent),
                "model_version": "1",
                "model_name": config["name"],
            }
        )
        try:
            yield Server(config, model)
        finally:
            model.finalize()
    finally:
        if before is None:
            del sys.modules[UTILS]
        else:
            sys.modules[UTILS] = before


def _utils() -> ModuleType:
    module = ModuleType(UTILS)
    for one in (TritonError, Tensor, InferenceRequest, InferenceResponse, get_input_tensor_by_name):
        setattr(module, one.__name__, one)
    return module
