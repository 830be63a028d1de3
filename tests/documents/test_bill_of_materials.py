"""The bill of materials names what gpn is installed with, and is the same each time."""

import importlib.util
import json
from importlib.metadata import Distribution, distributions, version
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "docs" / "tools" / "bill_of_materials.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bill_of_materials", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def package(folder: Path, name: str, *lines: str) -> Distribution:
    """An installed package with these lines of metadata."""
    place = folder / f"{name}-1.0.dist-info"
    place.mkdir()
    (place / "METADATA").write_text("\n".join([f"Name: {name}", "Version: 1.0", *lines]) + "\n\n")
    return Distribution.at(place)


def test_this_environment(script: ModuleType, tmp_path: Path) -> None:
    script.main(tmp_path / "bill.json")
    bill: Any = json.loads((tmp_path / "bill.json").read_text())
    assert (bill["bomFormat"], bill["metadata"]["component"]["name"]) == ("CycloneDX", "gpn")
    versions = {each["name"]: each["version"] for each in bill["components"]}
    assert versions["torch"] == version("torch")
    assert "gpn" not in versions
    assert "pip" not in versions
    references = {each["bom-ref"] for each in bill["components"]}
    (ours,) = (each for each in bill["dependencies"] if each["ref"].startswith("pkg:pypi/gpn@"))
    assert f"pkg:pypi/torch@{version('torch')}" in ours["dependsOn"]
    assert all(set(each["dependsOn"]) <= references for each in bill["dependencies"])
    assert bill == script.bill_of_materials(list(distributions()))


def test_names_licences_and_requirements(script: ModuleType, tmp_path: Path) -> None:
    installed = [
        package(tmp_path, "gpn", "Requires-Dist: Odd_Name[more]>=1; python_version>'3'"),
        package(tmp_path, "odd.name", "License: " + "x" * 99, "Classifier: License :: OSI :: MIT"),
    ]
    bill = script.bill_of_materials(installed)
    (other,) = bill["components"]
    assert other["purl"] == "pkg:pypi/odd-name@1.0"
    assert other["licenses"] == [{"license": {"name": "MIT"}}]
    assert bill["dependencies"][0]["dependsOn"] == ["pkg:pypi/odd-name@1.0"]


def test_an_environment_without_gpn_is_refused(script: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="gpn must be installed"):
        script.bill_of_materials([package(tmp_path, "torch")])
