"""`/docs`: the routes of the OpenAPI document as plain HTML, without script, in the style of the page."""

from __future__ import annotations

import json
from html import escape
from typing import Any

from pydantic import TypeAdapter

from albertine.serving.openapi import REFERENCE, Json
from albertine.serving.operations import CHANGED, GOT, Form
from albertine.serving.operations import posted as forms_by_path

SCALARS = {
    "string": "text",
    "integer": "integer",
    "number": "number",
    "boolean": "true | false",
    "null": "null",
}
DEEPEST = 3
"""Objects inside each other whose fields are written out."""
REQUEST = '<h3>Request · <span lang="zh-CN">请求</span></h3>\n'
RESPONSE = '<h3>Response · <span lang="zh-CN">响应</span></h3>\n'
HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Albertine: HTTP interface</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="page/style.css">
</head>
<body>
<header><div>
<h1>HTTP interface · <span lang="zh-CN">HTTP 接口</span></h1>
<p class="quiet">Routes of this server, also as <a href="openapi.json">OpenAPI</a>. A route that the model
has no head for answers 422. Where the server has a token, send <code>Authorization: Bearer TOKEN</code>.
<a href="./">Page of the model</a></p>
<p class="quiet" lang="zh-CN">本服务器的全部接口，另有 <a href="openapi.json">OpenAPI</a> 文档。
模型没有相应输出层时返回 422。服务器设有令牌时须发送 <code>Authorization: Bearer TOKEN</code>。
<a href="./">模型页面</a></p>
</div></header>
<main>
"""


def docs_page(document: Json) -> str:
    """The page of a document of `albertine.serving.openapi`."""
    operations = [
        (method, path, operation)
        for path, item in document["paths"].items()
        if not path.startswith("/page/")
        for method, operation in item.items()
    ]
    notation = Notation(document["components"]["schemas"])
    rows = "".join(
        f'<tr><td class="route"><a href="#{operation["operationId"]}">{method.upper()} {escape(path)}</a>'
        f"</td><td>{escape(operation['summary'])}</td></tr>\n"
        for method, path, operation in operations
    )
    forms = {(path, "post"): given for path, given in forms_by_path().items()}
    forms |= {(path, "get"): (form,) for path, form in GOT.items()}
    forms |= {key: (form,) for key, form in CHANGED.items()}
    sections = "".join(
        f'<h2 id="{operation["operationId"]}">{method.upper()} {escape(path)}</h2>\n'
        + "".join(_form(path, method, form, notation) for form in forms[path, method])
        for method, path, operation in operations
    )
    statuses = "".join(
        f"<tr><td>{name.removeprefix('Error')}</td><td>{escape(response['description'])}</td></tr>\n"
        for name, response in document["components"]["responses"].items()
        if name.startswith("Error")
    )
    return (
        f"{HEAD}<table>\n{rows}</table>\n{sections}"
        f'<h2 id="errors">Errors · <span lang="zh-CN">错误</span></h2>\n<table>\n{statuses}</table>\n'
        f"<pre>{escape(notation.of_named('Error'))}</pre>\n"
        f"<p>On <code>/v1/…</code>:</p>\n<pre>{escape(notation.of_named('OpenAiError'))}</pre>\n"
        "</main>\n</body>\n</html>\n"
    )


def _form(path: str, method: str, form: Form, notation: Notation) -> str:
    """A form of a request: what it is, its body, an example, and its response."""
    facts = [escape(form.summary)]
    facts += [f"Needs · <span lang='zh-CN'>需要</span>: {escape(form.needs)}."] if form.needs else []
    facts += [f"Clients · <span lang='zh-CN'>客户端</span>: {escape(form.clients)}."] if form.clients else []
    parts = [f"<p>{' '.join(facts)}</p>\n"]
    if form.body is not None:
        parts.append(f"{REQUEST}<pre>{escape(notation.of_type(form.body))}</pre>\n")
    if form.example:
        sent = escape(json.dumps(dict(form.example), ensure_ascii=False), quote=False)
        how = "" if method == "post" else f'-X {method.upper()} -H "Authorization: Bearer $ADMIN_TOKEN" '
        address = f"http://127.0.0.1:8080{path.replace('{name}', 'NAME')}"
        parts.append(f"<pre>curl {how}{address} -d '{sent}'</pre>\n")
    if form.media == "application/json":
        parts.append(f"{RESPONSE}<pre>{escape(notation.of_type(form.response))}</pre>\n")
    return "".join(parts)


class Notation:
    """JSON schemas in a short form: `[number]` is a list of numbers, `name?` a field that may be left out.

    Args:
        named: the schemas of the document by name.
    """

    def __init__(self, named: Json) -> None:
        self._named = named

    def of_named(self, name: str) -> str:
        return self(self._named[name])

    def of_type(self, one: Any) -> str:
        """The schema of a type, whose classes are named in the document."""
        return self(TypeAdapter(one).json_schema(ref_template=REFERENCE))

    def __call__(self, schema: Json, depth: int = 0) -> str:
        if reference := schema.get("$ref"):
            name = reference.rpartition("/")[2]
            return self(self._named[name], depth) if depth < DEEPEST else "{…}"
        if "anyOf" in schema:
            return " | ".join(dict.fromkeys(self(one, depth) for one in schema["anyOf"]))
        if "enum" in schema or "const" in schema:
            values = schema.get("enum", [schema.get("const")])
            return " | ".join(json.dumps(value, ensure_ascii=False) for value in values)
        kind = schema.get("type")
        if kind == "array":
            return f"[{self(schema.get('items', {}), depth)}]"
        if kind == "object":
            return self._object(schema, depth)
        return SCALARS.get(str(kind), "any")

    def _object(self, schema: Json, depth: int) -> str:
        if not (fields := schema.get("properties")):
            return "{…}"
        needed = schema.get("required", ())
        indent = "  " * (depth + 1)
        lines = []
        for name, own in fields.items():
            written = self(own, depth + 1)
            if written == "null":  # may only be left out
                continue
            default = own.get("default")
            plain = default is not None and not isinstance(default, dict)
            set_by = f" = {json.dumps(default, ensure_ascii=False)}" if plain else ""
            lines.append(f"{indent}{name}{'' if name in needed else '?'}: {written}{set_by}")
        return "{\n" + "\n".join(lines) + "\n" + "  " * depth + "}"
