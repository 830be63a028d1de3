"""The architecture page is true, folders stay small, and the layers hold."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "gpn"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
FOLDERS = sorted(path.parent for path in SOURCE.rglob("__init__.py"))
MAX_ENTRIES, MAX_TOP_ENTRIES = 13, 16  # the top is what users import by name


def name_of(folder: Path) -> str:
    return folder.relative_to(SOURCE.parent).as_posix()


def entries(folder: Path) -> list[str]:
    files = [path.stem for path in folder.glob("*.py") if not path.stem.startswith("__")]
    folders = [f"{path.parent.name}/" for path in folder.glob("*/__init__.py")]
    return sorted(files) + sorted(folders)


@pytest.mark.parametrize("folder", FOLDERS, ids=name_of)
def test_a_folder_has_one_sentence_and_few_entries(folder: Path) -> None:
    sentence = ast.get_docstring(ast.parse((folder / "__init__.py").read_text()))
    assert sentence, "the docstring of __init__ says what may live here"
    assert len(entries(folder)) <= (MAX_TOP_ENTRIES if folder == SOURCE else MAX_ENTRIES)


@pytest.mark.parametrize("folder", FOLDERS, ids=name_of)
def test_the_page_lists_every_folder_with_its_entries(folder: Path) -> None:
    (line,) = [row for row in PAGE.splitlines() if row.startswith(f"| `{name_of(folder)}/`")]
    listed = line.rstrip("| ").rpartition("|")[2].replace("`", "").split()
    assert listed == entries(folder)


def test_files_that_the_page_names_exist() -> None:
    walks = PAGE.partition("## One fit")[2]
    named = {
        word.strip("`,.;:()") for word in walks.split() if word.strip("`,.;:()").endswith(".py")
    }
    assert len(named) > 15
    missing = [name for name in named if not (SOURCE / name).exists()]
    assert not missing


def lint_imports(source: Path) -> subprocess.CompletedProcess[str]:
    """The contract of pyproject.toml on a copy of the source."""
    command = Path(sys.executable).with_name("lint-imports")
    return subprocess.run(
        [str(command), "--config", str(ROOT / "pyproject.toml"), "--no-cache"],
        env={**os.environ, "PYTHONPATH": str(source)},
        cwd=source,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("core/losses.py", "from gpn.training.loop import train"),
        ("training/loop.py", "def later():\n    from gpn.methods.gpn import GPN"),
        ("methods/gpn/model/batch.py", "from gpn.methods.gpn.fitting.fit import GPN"),
        ("methods/dropout.py", "from gpn.methods.gp import GP"),
    ],
    ids=["core", "inside a function", "inside the GPN", "between methods"],
)
def test_the_contract_fails_when_one_arrow_is_turned_round(
    tmp_path: Path, file: str, line: str
) -> None:
    shutil.copytree(SOURCE, tmp_path / "gpn", ignore=shutil.ignore_patterns("__pycache__"))
    path = tmp_path / "gpn" / file
    path.write_text(f"{path.read_text()}\n\n{line}\n")
    broken = lint_imports(tmp_path)
    assert broken.returncode == 1, broken.stdout + broken.stderr
    assert "BROKEN" in broken.stdout


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: path.stem)
def test_no_module_imports_the_whole_package(path: Path) -> None:
    """`import gpn` inside gpn would be an arrow to everything."""
    if path in (SOURCE / "__init__.py", SOURCE / "demo.py"):
        return
    modules = {entry.strip("/") for entry in entries(SOURCE)}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            assert "gpn" not in [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom) and node.module == "gpn":
            assert {alias.name for alias in node.names} <= modules
