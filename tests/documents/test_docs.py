"""The documentation: code runs, numbers are those of the result files, links lead somewhere."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import gpn
from docs.tools import results

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
LINK = re.compile(r"\]\(((?!http|#)[^)#\s]+)[^)]*\)")


def name_of(page: Path) -> str:
    return page.relative_to(DOCS).as_posix()


def python_blocks(text: str) -> list[str]:
    """Blocks of code; those that include an example are marked `{ .python }`, and run elsewhere."""
    return re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


WITH_CODE = [page for page in PAGES if python_blocks(page.read_text())]


@pytest.mark.parametrize("page", WITH_CODE, ids=name_of)
def test_the_code_of_a_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Blocks of one page run one after the other and share their names."""
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in python_blocks(page.read_text()):
        exec(compile(block, name_of(page), "exec"), names)
    assert capsys.readouterr().out


@pytest.mark.parametrize("page", results.documents(), ids=lambda page: page.stem)
def test_numbers_and_tables_are_those_of_the_result_files(page: Path) -> None:
    text = page.read_text()
    assert text.count("<!-- results:") == len(results.BLOCK.findall(text))
    assert text == results.filled(text), "a result file has changed: run make results"


def test_every_block_of_results_is_shown_somewhere() -> None:
    shown = {
        name
        for page in results.documents()
        for _, name, *_ in results.BLOCK.findall(page.read_text())
    }
    assert shown == set(results.BLOCKS)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_files_that_a_page_names_exist(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    missing = [path for path in LINK.findall(text) if not (page.parent / path).exists()]
    assert not missing


def test_every_public_name_is_in_the_reference() -> None:
    pages = "".join(page.read_text() for page in (DOCS / "reference").glob("*.md"))
    listed = set(re.findall(r"^::: gpn\.(\w+)", pages, flags=re.MULTILINE))
    assert set(gpn.__all__) <= listed


def test_every_example_has_its_page() -> None:
    text = "".join(page.read_text() for page in PAGES)
    for example in (ROOT / "examples").glob("*.py"):
        assert f'"examples/{example.name}"' in text
        assert f"gallery/{example.stem}.png" in text


def test_tests_that_the_theory_names_exist() -> None:
    source = "".join(path.read_text() for path in (ROOT / "tests" / "theory").glob("*.py"))
    named = re.findall(r"`(test_\w+)`", (DOCS / "theory.md").read_text())
    assert named
    assert [name for name in named if f"def {name}(" not in source] == []


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="mkdocs is not installed")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(folder)]
    alone = ["unshare", "--net", "--map-root-user"] if can_unshare() else []
    done = subprocess.run([*alone, *command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def can_unshare() -> bool:
    """Whether a process without a network can be started here."""
    if shutil.which("unshare") is None:
        return False
    command = ["unshare", "--net", "--map-root-user", "true"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_the_site_builds_strictly_and_fetches_nothing(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > len(PAGES)
    for page in pages:
        text = page.read_text()
        loaded = re.findall(r'<(?:script|img|iframe)[^>]* src="?([^" >]+)', text)
        loaded += re.findall(r'<link[^>]*rel="?stylesheet"?[^>]*href="?([^" >]+)', text)
        assert [address for address in loaded if address.startswith(("http", "//"))] == []


def test_formulas_are_drawn(site: Path) -> None:
    theory = (site / "theory.html").read_text()
    assert theory.count("<math") > 20
    assert "arithmatex" not in theory


def test_the_reference_has_docstrings(site: Path) -> None:
    page = (site / "reference" / "estimators.html").read_text()
    for word in ("predict_interval", "calibrate", "suggest", "save"):
        assert word in page
