"""Model cards: README.md in the Hub's form, with a YAML head and generated sections between marks.

Text outside of the marks and unknown entries of the head are kept. A saved model gets a card from its
config.json; `tasks.model_card` writes the full one, from a run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from albertine.core.settings import YAML_ERRORS, BoundedLoader
from albertine.interop.heads import has_own_head, why_own_head
from albertine.interop.huggingface.config import read_config, read_model_type
from albertine.model.config import EncoderConfig
from albertine.model.sharing import sharing_in_words

NAME = "README.md"
RESULTS = ".eval_results"
"""The folder in which the Hub looks for scores of a model."""
_ABOUT_THE_RUN = ("model-index", "co2_eq_emissions", "pipeline_tag")
_HEAD = re.compile(r"\A---\r?\n(.*?)\r?\n---\r?\n?", re.DOTALL)
_SECTION = re.compile(r"<!-- albertine:(\w+) -->\n.*?<!-- /albertine -->\n*", re.DOTALL)
_STATED = re.compile(r"<!-- albertine stated (\{.*?\}) -->")


@dataclass(frozen=True)
class Card:
    """The content of a model card.

    Attributes:
        head: entries of the YAML head; None is left out.
        sections: Markdown with headings, by key, in their order.
        metadata: stated by the user (licence, watts); stored in the card, and read when it is written again.
    """

    head: Mapping[str, Any]
    sections: Mapping[str, str]
    metadata: Mapping[str, Any] = field(default_factory=dict)


def model_card(config: Mapping[str, Any], count: int, before: str = "", *, names: str = "") -> str:
    """A card from config.json alone.

    Args:
        count: of parameters. names: as in `usage_section`.
        before: the existing card, whose own text is kept.
    """
    card = Card(
        {"library_name": "albertine", "tags": ["albertine", str(config["model_type"])]},
        {
            "model": f"# {default_title(config)}\n\n{describe_shape(config, count)}",
            "use": usage_section(config, names=names),
        },
        stored_metadata(before),
    )
    return render_card(card, before)


def default_title(config: Mapping[str, Any]) -> str:
    """The title of a card for a model without a name."""
    return str((config.get("architectures") or ["albertine.Model"])[0])


def describe_shape(config: Mapping[str, Any], count: int, shape: EncoderConfig | None = None) -> str:
    """A sentence on the size and the sharing of an encoder.

    Args:
        count: of parameters. shape: of the encoder as it is computed; default: that of config.json.
    """
    kind = read_model_type(config)
    shape = shape or read_config(kind, config)
    return (
        f"A text encoder ({kind}): {count:,} parameters, hidden size {shape.hidden_size}, embedding size "
        f"{shape.embedding_size}, vocabulary {shape.vocab_size:,}; {sharing_in_words(shape.plan)}."
    )


_LOADED_BY = {
    "lonepatient": "lonePatient's albert_pytorch",
    "bright": "lonePatient's albert_pytorch",
    "tensorflow": "The code of the paper, on TensorFlow,",
}
"""Programs that load models with parameter names which transformers ignores without an error."""


def usage_section(config: Mapping[str, Any], more: Sequence[str] = (), *, names: str = "") -> str:
    """How to load a model.

    Args:
        more: further lines of Python that use it with Albertine.
        names: of its parameters, as `ModelFolder.names`.
    """
    name = "path/to/this/folder"
    lines = ["## How to use it", "", "```python", "import albertine", ""]
    lines += [f'model = albertine.load("{name}")', f'tokenizer = albertine.load_tokenizer("{name}")', *more]
    lines += ["```", ""]
    if config["model_type"] == "albertine":
        return "\n".join([*lines, "transformers has no name for its sharing plan; Albertine loads it."])
    if names in _LOADED_BY:
        text = (
            f"{_LOADED_BY[names]} loads the same folder. transformers does not: it would start from random "
            f"weights. `albertine convert {name} NEW-FOLDER` writes it for transformers."
        )
        return "\n".join([*lines, text])
    auto = _auto(config)
    loads = (
        "transformers loads the same folder:" if auto != "AutoModel" else "transformers loads its encoder:"
    )
    if has_own_head(config):
        loads = (
            f'`albertine.Predictor("{name}")` gives the answers of its head. transformers has no class that '
            f"computes this head: {why_own_head(config)}. It loads the encoder:"
        )
    lines += [
        loads,
        "",
        "```python",
        f"from transformers import {auto}, AutoTokenizer",
        "",
        f'model = {auto}.from_pretrained("{name}")',
        f'tokenizer = AutoTokenizer.from_pretrained("{name}")',
        "```",
    ]
    return "\n".join(lines)


_AUTO = {
    "ForPreTraining": "AutoModelForPreTraining",
    "ForMaskedLM": "AutoModelForMaskedLM",
    "ForSequenceClassification": "AutoModelForSequenceClassification",
    "ForTokenClassification": "AutoModelForTokenClassification",
    "ForQuestionAnswering": "AutoModelForQuestionAnswering",
    "ForQuestionAnsweringSimple": "AutoModelForQuestionAnswering",
    "ForMultipleChoice": "AutoModelForMultipleChoice",
}
_JOINT = "XLNetForQuestionAnswering"
"""Loaded by its class: AutoModelForQuestionAnswering is XLNetForQuestionAnsweringSimple, without its head."""


def _auto(config: Mapping[str, Any]) -> str:
    name = default_title(config)
    if has_own_head(config):
        return "AutoModel"
    if name == _JOINT:
        return name
    return next((auto for end, auto in _AUTO.items() if name.endswith(end)), "AutoModel")


def render_card(card: Card, before: str = "") -> str:
    """README.md of a card.

    Args:
        before: the existing file. Its generated sections and known entries of the head are replaced; scores
            and carbon of an earlier model are deleted.
    """
    old = head_of(before)
    own = _SECTION.sub("", _HEAD.sub("", before) if old else before)  # a head that cannot be parsed is kept
    if _SECTION.search(before):
        old = {key: value for key, value in old.items() if key not in _ABOUT_THE_RUN}
    own = _STATED.sub("", own).strip("\n")
    new = {key: value for key, value in card.head.items() if value is not None}
    tags = [*new.get("tags", ()), *(tag for tag in old.get("tags") or () if isinstance(tag, str))]
    head = {**old, **new, **({"tags": list(dict.fromkeys(tags))} if tags else {})}
    text = yaml.safe_dump(head, sort_keys=False, allow_unicode=True, width=10_000)
    parts = [f"---\n{text}---\n"]
    parts += [
        f"<!-- albertine:{key} -->\n{body.strip()}\n<!-- /albertine -->\n"
        for key, body in card.sections.items()
    ]
    parts += [own + "\n"] if own else []
    if card.metadata:
        parts.append(f"<!-- albertine stated {json.dumps(dict(card.metadata), ensure_ascii=False)} -->\n")
    return "\n".join(parts)


def head_of(card: str) -> dict[str, Any]:
    """The YAML head of a README.md; empty if there is none or it cannot be parsed."""
    found = _HEAD.match(card)
    try:
        tree = BoundedLoader(found[1]).get_single_data() if found else {}
    except YAML_ERRORS:
        return {}
    return tree if isinstance(tree, dict) else {}


def stored_metadata(card: str) -> dict[str, Any]:
    """The metadata stated by the user in an earlier card."""
    found = _STATED.search(card)
    try:
        tree = json.loads(found[1]) if found else {}
    except ValueError:
        return {}
    return tree if isinstance(tree, dict) else {}
