"""Our docstrings as Markdown, for the reference: settings become a list, equations stay lines."""

import re
from typing import Any

import griffe

SETTING = re.compile(r"^([a-z_]+(?:, [a-z_]+)*)\n((?:    .+\n?|\n(?=    ))+)", re.MULTILINE)


class PlainDocstrings(griffe.Extension):
    """Settings with an indented text, or options as `name: text`, become items of a list."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is None:
            return
        text = SETTING.sub(as_item, obj.docstring.value)
        if obj.is_class:
            text = with_options(text, options_of(obj))
        obj.docstring.value = text


def as_item(match: re.Match[str]) -> str:
    names = ", ".join(f"`{name}`" for name in match[1].split(", "))
    return f"- {names}: {' '.join(match[2].split())}\n"


def options_of(kind: griffe.Object) -> list[str]:
    init = kind.members.get("__init__")
    return [p.name for p in init.parameters] if isinstance(init, griffe.Function) else []


def with_options(text: str, names: list[str]) -> str:
    """`name: text` at the start of a sentence becomes an item."""
    paragraphs = []
    for paragraph in text.split("\n\n"):
        line = " ".join(paragraph.split())
        items = line
        for name in names:
            items = re.sub(rf"(^|(?<=\. )){name}: ", f"\n- `{name}`: ", items)
        paragraphs.append(items.strip() if items != line else paragraph)
    return "\n\n".join(paragraphs)
