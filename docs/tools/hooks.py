"""What `mkdocs build` does beyond MkDocs: files of the repository as pages, and formulas as MathML.

A page may link to any file of the repository by its relative path, as on a code host. Such a file
becomes part of the site under repo/: Markdown and source code as pages, all else as it is.
"""

import html
import os
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
STATIC = {".png", ".svg"}
LANGUAGES = {".py": "python", ".json": "json", ".toml": "toml", ".yml": "yaml"}
PAGES = ("experiments/README.md", "benchmarks/README.md", "CONTRIBUTING.md", "CHANGELOG.md")


def on_files(files: Files, config: Any) -> Files:
    """Add every file outside docs/ that a page links to, and what those pages link to in turn."""
    waiting = [ROOT / name for name in PAGES]
    for file in files.documentation_pages():
        page = Path(file.abs_src_path or "")
        waiting += [target for target in linked(page) if is_outside(target)]
    added: set[Path] = set()
    while waiting:
        path = waiting.pop()
        if path in added:
            continue
        added.add(path)
        files.append(site_file(path, config))
        if path.suffix == ".md":
            waiting += [target for target in linked(path) if is_outside(target)]
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point links to files of the repository at their place in the site."""
    here = origin(page.file.src_uri)
    base = os.path.dirname(page.file.src_uri)

    def moved(match: re.Match[str]) -> str:
        start, target, anchor, end = match.groups()
        path = resolve(here, target)
        if path is None:
            return match.group()
        found = os.path.relpath(address(path), base or ".")
        return f"{start}{found}{anchor or ''}{end}"

    return outside_code(markdown, lambda text: LINK.sub(moved, text))


def on_page_content(content: str, **_: Any) -> str:
    """Formulas as MathML, which browsers draw without a script."""

    def drawn(match: re.Match[str]) -> str:
        text = html.unescape(match.group(3)).strip()
        display = "block" if match.group(1) == "div" else "inline"
        return convert(text[2:-2].strip(), display=display)

    pattern = r'<(div|span) class="arithmatex">(<span[^>]*></span>)?(.*?)</\1>'
    return re.sub(pattern, drawn, content, flags=re.DOTALL)


def linked(page: Path) -> list[Path]:
    """The existing files that a page links to by relative paths."""
    text = FENCE.sub("", page.read_text())
    found = (resolve(page, match.group(2)) for match in LINK.finditer(text))
    return [path for path in found if path is not None]


def resolve(page: Path, target: str) -> Path | None:
    if re.match(r"[a-z]+:", target):
        return None
    path = (page.parent / target).resolve()
    return path if path.exists() else None


def is_outside(path: Path) -> bool:
    return not path.is_relative_to(ROOT / "docs")


def address(path: Path) -> str:
    """Where a file of the repository is in the site, as a path of MkDocs."""
    relative = path.relative_to(ROOT).as_posix()
    if not is_outside(path):
        return path.relative_to(ROOT / "docs").as_posix()
    as_is = path.suffix in STATIC or relative.endswith(".md")
    return f"repo/{relative}" if as_is else f"repo/{relative}.md"


def origin(src_uri: str) -> Path:
    """The file of the repository that a page of the site shows."""
    if src_uri.startswith("repo/"):
        return ROOT / src_uri.removeprefix("repo/")
    return ROOT / "docs" / src_uri


def site_file(path: Path, config: Any) -> File:
    uri = address(path)
    if path.suffix in STATIC or uri == f"repo/{path.relative_to(ROOT).as_posix()}":
        return File.generated(config, uri, abs_src_path=str(path))
    return File.generated(config, uri, content=source_page(path))


def source_page(path: Path) -> str:
    """A folder as a list of its files, a file as code."""
    title = f"# {path.relative_to(ROOT).as_posix()}\n\n"
    if path.is_dir():
        return title + "\n".join(f"- `{child.name}`" for child in sorted(path.iterdir()))
    return f"{title}````{LANGUAGES.get(path.suffix, 'text')}\n{path.read_text().rstrip()}\n````\n"


def outside_code(text: str, change: Any) -> str:
    """Apply `change` to everything but fenced code."""
    parts, start = [], 0
    for fence in FENCE.finditer(text):
        parts += [change(text[start : fence.start()]), fence.group()]
        start = fence.end()
    return "".join([*parts, change(text[start:])])
