"""The short README.md of a model folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


def model_card(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    """What the model is and how to load it, from its config.json and its tensors."""
    kind = str(config["model_type"])
    count = sum(t.numel() for t in tensors.values())
    shape = config.get("encoder", config)
    if kind == "xlnet":
        shape = {"num_hidden_layers": shape["n_layer"], "hidden_size": shape["d_model"], **shape}
    depth = shape.get("num_hidden_layers") or len(shape["plan"]["attention"])
    architecture = (config.get("architectures") or ["albertine.Model"])[0]
    lines = [
        "---",
        "library_name: albertine",
        f"tags: [albertine, {kind}]",
        "---",
        "",
        f"# {architecture}",
        "",
        f"A parameter-shared text encoder ({kind}): {count:,} parameters, {depth} layers, hidden size "
        f"{shape['hidden_size']}, embedding size {shape.get('embedding_size', shape['hidden_size'])}, "
        f"vocabulary {shape['vocab_size']:,}.",
        "",
        "```python",
        "import albertine",
        "",
        'model = albertine.load("path/to/this/folder")',
        "```",
        "",
    ]
    if kind != "albertine":
        lines += ["transformers loads the same folder with `AutoModel.from_pretrained`.", ""]
    else:
        lines += ["transformers has no name for its sharing plan; Albertine loads it.", ""]
    return "\n".join(lines)
