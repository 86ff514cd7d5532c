"""The Python interface: public names, signatures, and what the returned objects hold."""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import Any

import albertine
from albertine import api, errors
from tests.contracts.products import Products

TASKS = (
    *("classify", "tag", "tag_all", "answer", "likely_spans", "choose", "choose_all", "relate", "relate_all"),
    *("embed", "similarity", "fill_mask", "fill_mask_all", "sentence_order", "generate", "go_on", "read"),
    "predict",
)
"""The methods of `Predictor` that users call; others serve this package."""
MODULE_PATH = re.compile(r"\b(?:[a-z_]\w*\.)+(?=\w)")


def contract(products: Products) -> dict[str, Any]:
    """Names and signatures of `albertine`, of the classes of what it returns, and its exceptions."""
    modules = {name: getattr(albertine, name) for name in ("analyze", "study")}
    functions = {name: getattr(albertine, name) for name in sorted(albertine.__all__) if name not in modules}
    functions["export"] = api.export  # `albertine.export` is a module that can be called
    functions |= {f"{of}.{name}": getattr(one, name) for of, one in modules.items() for name in one.__all__}
    model = albertine.load(products.model)
    task = albertine.load_task(products.tuned.folder)
    tokenizer = albertine.load_tokenizer(products.model)
    returned = {
        "prepare": products.manifest,
        "pretrain": products.pretrained,
        "finetune": products.tuned,
        "export": products.exported,
        "convert": products.converted,
    }
    return {
        "albertine": {name: _signature(function) for name, function in functions.items()},
        "Predictor": {name: _signature(getattr(albertine.Predictor, name)) for name in TASKS},
        "TextClassifier": {
            name: _signature(getattr(albertine.TextClassifier, name))
            for name in ("__init__", "fit", "predict", "predict_proba")
        },
        "load": {"forward": _signature(type(model).forward)},
        "load_task": {"forward": _signature(type(task).forward)},
        "load_tokenizer": {"__call__": _signature(type(tokenizer).__call__)},
        "returned": {name: _fields(value) for name, value in returned.items()},
        "errors": {
            name: [base.__name__ for base in cls.__mro__[1:-2]]
            for name, cls in sorted(vars(errors).items())
            if inspect.isclass(cls) and issubclass(cls, errors.AlbertineError)
        },
    }


def _signature(function: Any) -> list[str]:
    """The parameters of a function or class, each as a line, and what it returns.

    Paths of modules are left out of annotations, so that a class may move.
    """
    found = inspect.signature(function)
    lines = []
    for parameter in found.parameters.values():
        if parameter.name == "self":
            continue
        kind = parameter.kind.description if parameter.kind != parameter.POSITIONAL_OR_KEYWORD else ""
        default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
        lines.append(f"{parameter.name}: {_annotation(parameter.annotation)}{default} {kind}".strip())
    return [*lines, f"-> {_annotation(found.return_annotation)}"]


def _annotation(given: Any) -> str:
    text = given if isinstance(given, str) else inspect.formatannotation(given)
    return MODULE_PATH.sub("", text)


def _fields(value: Any) -> list[str]:
    """The public fields of a result."""
    if dataclasses.is_dataclass(value):
        return [field.name for field in dataclasses.fields(value) if not field.name.startswith("_")]
    return list(value._fields)
