"""The README's and CONTRIBUTING's code runs as written, and what they name exists."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("code", blocks(README, "python"))
def test_readme_code_runs(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {})
    assert "print" not in code or capsys.readouterr().out


def test_there_is_code_to_run() -> None:
    assert blocks(README, "python")


def test_first_block_is_the_two_commands() -> None:
    first = blocks(README, "bash")[0]
    assert [line.split("#")[0].strip() for line in first.splitlines()] == ["make demo", "make test"]
    for target in ("demo", "test"):
        plan = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, check=False)
        assert plan.returncode == 0, plan.stderr


@pytest.mark.parametrize("path", re.findall(r"\]\(((?!http)[^)#]+)\)", README))
def test_files_that_the_readme_names_exist(path: str) -> None:
    assert (ROOT / path).exists(), path
