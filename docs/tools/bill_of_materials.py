"""`python docs/tools/bill_of_materials.py OUT`: what an environment with gpn is made of.

CycloneDX 1.5 as JSON, from the metadata of every package that is installed beside gpn: name,
version, licence, and what it requires. `make release-check` runs it in the empty environment into
which it has installed the wheel. Nothing but the standard library is needed, nothing is fetched,
and the same environment gives the same file.
"""

import json
import re
import sys
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

INSTALLERS = {"pip", "setuptools", "wheel"}
MAX_LICENCE = 60  # characters; longer ones are the whole text


def main(out: Path) -> None:
    bill = bill_of_materials(list(distributions()))
    out.write_text(json.dumps(bill, indent=1) + "\n")
    print(f"{len(bill['components'])} packages beside gpn in {out.name}")


def bill_of_materials(installed: list[Distribution]) -> dict[str, Any]:
    """The bill of these packages, gpn being what they are for."""
    packages = {name_of(each): each for each in installed}
    if "gpn" not in packages:
        raise SystemExit("error: gpn must be installed in the environment, it is not.")
    ours = packages.pop("gpn")
    others = {name: packages[name] for name in sorted(packages) if name not in INSTALLERS}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": component(ours)},
        "components": [component(each) for each in others.values()],
        "dependencies": [
            {"ref": purl(each), "dependsOn": required(each, others)}
            for each in (ours, *others.values())
        ],
    }


def name_of(package: Distribution) -> str:
    """The normalised name."""
    return re.sub(r"[-_.]+", "-", package.metadata["Name"]).lower()


def purl(package: Distribution) -> str:
    return f"pkg:pypi/{name_of(package)}@{package.version}"


def component(package: Distribution) -> dict[str, Any]:
    found: dict[str, Any] = {
        "type": "library",
        "bom-ref": purl(package),
        "name": name_of(package),
        "version": package.version,
        "purl": purl(package),
    }
    licence = licence_of(package)
    return {**found, "licenses": [{"license": {"name": licence}}]} if licence else found


def licence_of(package: Distribution) -> str:
    """As the package states it: an expression, a short text, or a classifier."""
    fields = package.metadata
    stated = fields.get("License-Expression") or fields.get("License") or ""
    if 0 < len(stated) <= MAX_LICENCE and "\n" not in stated:
        return str(stated)
    classifiers = fields.get_all("Classifier") or []
    named = [text.split(" :: ")[-1] for text in classifiers if text.startswith("License ::")]
    return named[0] if named else ""


def required(package: Distribution, others: dict[str, Distribution]) -> list[str]:
    """The installed packages that it requires, in order of their names."""
    texts = package.requires or []
    names = {re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", text)[0]).lower() for text in texts}
    return [purl(others[name]) for name in sorted(names & set(others))]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
