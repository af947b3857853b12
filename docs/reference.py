"""Write the pages of the reference that the code itself describes: commands and the HTTP API."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from typer.main import get_command

from fedbo.cli.app import app
from fedbo.hub.app import create_app
from fedbo.hub.problems import PROBLEMS
from fedbo.hub.settings import Settings

FOLDER = Path(__file__).parent / "reference"
COMMANDS = """# Command line

Every command of `fedbo`, as `--help` shows it. Where a text such as `--to ADDRESS` appears, ADDRESS
stands for a value of yours. A command that fails says what was given, what it expected and what to
do, and ends with status 1, or 2 if an option is wrong.
"""
API = """# HTTP API of a hub

fedbo's own clients use this API, so you need it only to write another one, or to look into a hub.
A running hub has the same description at `/docs`, and as OpenAPI 3.1 at `/openapi.json`.

- **Who asks**: `Authorization: Bearer TOKEN`, with a member's token. The page
  of the hub uses a cookie instead.
- **Bodies** are JSON. Only messages are in
  [MessagePack](formats.md#between-a-member-and-its-hub).
- **What is refused** changes nothing; the answer is a [problem](#problems) (RFC 9457).
"""
PROBLEM_TITLE = """## Problems

A problem has a `type` (`/problems/` and one of these words), a `title`, a `status`, and a `detail`,
which says what was given, what was expected and what to do. Its `instance` is the number of the
request in the hub's log.

| type | status | title |
|---|---|---|
"""


# The command line


def commands(command: click.Command, path: str, level: int) -> Iterator[str]:
    """Write a command, and the commands below it."""
    context = click.Context(command, info_name=path)
    if level > 1:
        pieces = " ".join(command.collect_usage_pieces(context))
        usage = "" if isinstance(command, click.Group) else f"```\n{path} {pieces}\n```\n\n"
        yield f"{'#' * level} {path}\n\n{usage}{text(command.help or '')}\n"
        if usage:
            yield from options(command, context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from commands(below, f"{path} {name}", min(level + 1, 4))


def options(command: click.Command, context: click.Context) -> Iterator[str]:
    rows = []
    for parameter in command.params:
        names = [*parameter.opts, *parameter.secondary_opts]
        is_option = isinstance(parameter, click.Option)
        if "--help" in names or getattr(parameter, "hidden", False):
            continue
        needs_value = is_option and not getattr(parameter, "is_flag", False)
        shown = ", ".join(names) if is_option else parameter.make_metavar(context)
        value = parameter.make_metavar(context).removesuffix(" RANGE") if needs_value else ""
        rows.append(f"| `{shown} {value}".rstrip() + f"` | {cell(meaning(parameter))} |")
    if rows:
        yield "| | |\n|---|---|\n" + "\n".join(rows) + "\n"


def meaning(parameter: click.Parameter) -> str:
    said = getattr(parameter, "help", None) or ""
    default = parameter.default
    if parameter.required and isinstance(parameter, click.Option):
        return f"{said} *Required.*"
    if default is None or isinstance(default, bool) or callable(default) or default == "":
        return said
    return f"{said} *Default:* `{default}`."


def text(described: str) -> str:
    """Return a help text as Markdown: paragraphs after a backspace keep their lines."""
    return "\n\n".join(
        f"```\n{paragraph[2:]}\n```" if paragraph.startswith("\b\n") else html.escape(paragraph)
        for paragraph in described.strip().split("\n\n")
    )


def cell(content: str) -> str:
    return " ".join(content.replace("|", "\\|").split())


# The HTTP API


def operations(document: dict[str, Any]) -> Iterator[str]:
    """Write what can be asked of a hub, by subject."""
    subjects: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            lines = subjects.setdefault(operation["tags"][0], [])
            lines.append(f"### {method.upper()} {path}\n\n{operation['description']}\n")
            lines += parameters(operation)
    for subject, lines in subjects.items():
        yield f"## {subject.capitalize()}\n"
        yield from lines


def parameters(operation: dict[str, Any]) -> Iterator[str]:
    rows = []
    for parameter in operation.get("parameters", []):
        schema = parameter["schema"]
        said = parameter.get("description") or described(schema)
        if parameter["in"] == "query":
            rows.append(f"| `?{parameter['name']}=` | {cell(said)} |")
    for media, content in operation.get("requestBody", {}).get("content", {}).items():
        rows.append(f"| body | {body(media, content)} |")
    for status, answer in operation["responses"].items():
        contents = answer.get("content", {})
        if status.startswith("2"):
            kinds = ", ".join(body(media, content) for media, content in contents.items())
            note = answer["description"].replace("Successful Response", "")
            rows.append(f"| answer | {status} {cell(' '.join((kinds, note)))} |")
    who = "a token" if "security" in operation else "nothing: anyone may ask"
    yield "| | |\n|---|---|\n" + "\n".join([f"| needs | {who} |", *rows]) + "\n"


def body(media: str, content: dict[str, Any]) -> str:
    name = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
    return f"[{name}](#{name.lower()})" if name else f"`{media}`"


def schemas(document: dict[str, Any]) -> Iterator[str]:
    """Write what bodies in JSON consist of."""
    yield "## Bodies\n"
    for name, schema in document["components"]["schemas"].items():
        rows = [
            f"| `{field}` | {cell(kind(value))} | {cell(described(value))} |"
            for field, value in schema.get("properties", {}).items()
        ]
        yield f"### {name}\n\n{schema.get('description', '')}\n"
        yield "| field | type | |\n|---|---|---|\n" + "\n".join(rows) + "\n"


def kind(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(kind(choice) for choice in schema["anyOf"])
    if schema.get("type") == "array":
        return f"list of {kind(schema.get('items', {}))}"
    return str(schema.get("format") or schema.get("type", "anything"))


def described(schema: dict[str, Any]) -> str:
    choices = [schema, *schema.get("anyOf", [])]
    return next((choice["description"] for choice in choices if "description" in choice), "")


def problems() -> Iterator[str]:
    rows = (f"| `{slug}` | {status} | {title} |" for slug, (status, title) in PROBLEMS.items())
    yield PROBLEM_TITLE + "\n".join(rows)


def code(markdown: str) -> str:
    """Let a path such as /v1/federations/{federation} be code in a heading."""
    return re.sub(r"^### ([A-Z]+) (/.*)$", r"### \1 `\2`", markdown, flags=re.M)


if __name__ == "__main__":
    document = create_app(Settings()).openapi()
    pages = {
        "cli.md": [COMMANDS, *commands(get_command(app), "fedbo", 1)],
        "http.md": [API, *operations(document), *problems(), "", *schemas(document)],
    }
    for name, parts in pages.items():
        (FOLDER / name).write_text(code("\n".join(parts)) + "\n", encoding="utf-8")
