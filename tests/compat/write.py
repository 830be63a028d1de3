"""Write the model files of this version and the answers that they give.

Run it once at each release, with the library as it will be released, and commit the new folder:

    make compat-files                       # tests/compat/<version>/
    python -m tests.compat.write FOLDER     # FOLDER/<version>/

From then on `test_open.py` opens these files with every later version and compares the answers.
Never write the folder of an older version again: its files must be those that it wrote. A new kind
of model goes into `models.py`, a new question into `questions.py`; older folders stay as they are.
"""

import json
import sys
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gpn
from tests.compat import data, models
from tests.compat.questions import EXPECTED, answer, opened, questions_for

HERE = Path(__file__).parent
MAX_BYTES = 1_500_000


def main(parent: Path = HERE) -> None:
    folder = parent / gpn.__version__.removesuffix(".dev0")
    folder.mkdir(parents=True)  # raises where this version has been written
    rows = write_models(folder)
    asked: dict[str, Any] = {
        "plane": data.PLANE,
        "images": data.image_rows().tolist(),
        "table": data.ASKED_TABLE,
        "frame": data.ASKED_FRAME,
    }
    files = {name: {"rows": key, "answers": ask(folder / name, asked[key])} for name, key in rows}
    (folder / EXPECTED).write_text(as_text({"rows": asked, "files": files}))
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"{len(files)} model files, {size:,} bytes with their answers: {folder}")
    if size > MAX_BYTES:
        sys.exit(f"error: a version's files must take at most {MAX_BYTES:,} bytes, shrink some.")


def write_models(folder: Path) -> list[tuple[str, str]]:
    """Fit and save everything; the files' names, each with the name of its rows."""
    rows: dict[str, str] = {}
    with warnings.catch_warnings(), models.small_detectors():
        warnings.simplefilter("ignore")  # fits as short as these are doubtful, and say so
        for name, key, model in models.in_memory():
            gpn.save(model, folder / f"{name}.gpn")
            rows[f"{name}.gpn"] = key
        with TemporaryDirectory() as scratch:
            models.write_tables(folder, Path(scratch))
    return [(path.name, rows.get(path.name, "table")) for path in sorted(folder.glob("*.gpn"))]


def ask(path: Path, rows: Any) -> dict[str, Any]:
    """Every question's answer, from the file."""
    saved = opened(path, rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of values that the fit has not seen
        return {question: answer(saved, question) for question in questions_for(saved)}


def as_text(content: dict[str, Any]) -> str:
    """JSON with a line for each answer, so that a change can be read."""
    rows = ",\n".join(f"  {json.dumps(k)}: {_short(v)}" for k, v in content["rows"].items())
    files = ",\n".join(_file_text(name, file) for name, file in content["files"].items())
    return f'{{"rows": {{\n{rows}\n}},\n"files": {{\n{files}\n}}}}\n'


def _file_text(name: str, file: dict[str, Any]) -> str:
    answers = ",\n".join(f"  {json.dumps(k)}: {_short(v)}" for k, v in file["answers"].items())
    return f'{json.dumps(name)}: {{"rows": {json.dumps(file["rows"])}, "answers": {{\n{answers}}}}}'


def _short(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
