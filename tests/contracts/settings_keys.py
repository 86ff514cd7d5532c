"""The keys of settings files with their types, bounds and defaults."""

from __future__ import annotations

from typing import Any

from albertine.pretraining.settings import PretrainingSettings
from albertine.tasks.families import KINDS
from albertine.tasks.settings import FinetuneSettings


def contract() -> dict[str, Any]:
    """By kind of run the dotted keys with their types and defaults.

    `albertine distill` takes the keys of pretraining. A suite file takes those of fine-tuning, with `data`
    and `tasks`.
    """
    return {
        "pretrain": _keys(PretrainingSettings.model_json_schema(mode="validation")),
        "finetune": _keys(FinetuneSettings.model_json_schema(mode="validation")),
        **{
            f"finetune task.kind={kind}": _keys(task.model_json_schema(mode="validation"))
            for kind, task in sorted(KINDS.items())
        },
    }


def _keys(schema: dict[str, Any]) -> dict[str, str]:
    return dict(_walk(schema, schema.get("$defs", {}), ""))


def _walk(node: dict[str, Any], definitions: dict[str, Any], prefix: str) -> list[tuple[str, str]]:
    required = node.get("required", ())
    found = []
    for name, field in node["properties"].items():
        default = "required" if name in required else f"default {field.get('default')!r}"
        parts = _objects(field, definitions)
        if parts:
            nullable = "" if field.get("default", "") is not None else " (none by default)"
            plain = [
                form for form in field.get("anyOf", ()) if "$ref" not in form and form != {"type": "null"}
            ]
            words = "".join(f"{_type(form, definitions)} or " for form in plain if "type" in form)
            found.append((f"{prefix}{name}", f"{words}part{nullable}"))
            for part in parts:
                found += _walk(part, definitions, f"{prefix}{name}.")
        else:
            found.append((f"{prefix}{name}", f"{_type(field, definitions)}, {default}"))
    return found


def _objects(field: dict[str, Any], definitions: dict[str, Any]) -> list[dict[str, Any]]:
    """The definitions of the parts that a field holds."""
    forms = [field, *field.get("anyOf", ()), *field.get("allOf", ()), field.get("items", {})]
    named = [definitions[form["$ref"].rpartition("/")[2]] for form in forms if "$ref" in form]
    return [definition for definition in named if "properties" in definition]


def _type(field: dict[str, Any], definitions: dict[str, Any]) -> str:
    if "$ref" in field:
        return _type(definitions[field["$ref"].rpartition("/")[2]], definitions)
    if "anyOf" in field:
        return " or ".join(_type(form, definitions) for form in field["anyOf"])
    if "enum" in field or "const" in field:
        return "|".join(map(str, field.get("enum", [field.get("const")])))
    bounds = {
        sign: field[name]
        for name, sign in (
            ("minimum", ">="),
            ("exclusiveMinimum", ">"),
            ("maximum", "<="),
            ("exclusiveMaximum", "<"),
        )
        if name in field
    }
    words = [str(field.get("format", field.get("type", "anything")))]
    if field.get("type") == "array":
        items = field.get("items") or {"anyOf": field.get("prefixItems", [])}
        words = [f"list of {_type(items, definitions)}"]
    return " ".join([*words, *(f"{sign}{value:g}" for sign, value in bounds.items())])
