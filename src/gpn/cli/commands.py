"""The command `gpn`. Status 0: done; 1: the data or a file cannot be used; 2: a wrong option."""

import json
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gpn.tables.chunks import counting, piecewise, status

if TYPE_CHECKING:
    from pandas import DataFrame

    from gpn.tables.model import TableModel


app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Models that know what they do not know, from few labels and much unlabeled data.",
)

say = Console(stderr=True, highlight=False)


ModelFile = Annotated[Path, typer.Argument(help="a model that gpn fit wrote")]

TableFile = Annotated[Path, typer.Argument(help="CSV or Parquet, plain or .gz")]

AsJson = Annotated[bool, typer.Option("--json", help="results on stdout as JSON, nothing else")]


@app.command(epilog="Example: gpn demo --folder pictures")
def demo(folder: Annotated[Path, typer.Option(help="for the pictures")] = Path("demo")) -> None:
    """Six points and every method: a table and pictures."""
    from gpn.demo import main

    main(folder)


@app.command(epilog="Example: gpn fit labeled.csv --target Tc --unlabeled pool.csv --out tc.gpn")
def fit(
    labeled: TableFile,
    target: Annotated[str, typer.Option(help="the column to predict")],
    out: Annotated[Path, typer.Option(help="the model's file")],
    unlabeled: Annotated[Path | None, typer.Option(help="rows without a target")] = None,
    kind: Annotated[str, typer.Option(help="auto, regression or classification")] = "auto",
    method: Annotated[str, typer.Option(help="see gpn methods")] = "gpn",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, ...")] = "auto",
    seed: int = 0,
    keep_rows: Annotated[
        bool, typer.Option("--keep-rows/--forget-rows", help="labeled rows in the file (2,000)")
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Learn to predict a column, and to know the rows it cannot be predicted for."""
    with errors(as_json=as_json):
        from gpn.estimators.validation import SyntheticPoolWarning
        from gpn.tables import files as frames
        from gpn.tables.encoder import texts_of
        from gpn.tables.model import fit_table
        from gpn.tables.target import is_class, target_of

        os.unlink(frames.temporary(out))  # better to know before the fit than after it
        table = frames.read(labeled)
        classes = is_class(target_of(table, target)) if kind == "auto" else _asks_for_classes(kind)
        what = "classes" if classes else "numbers"
        _tell(f"{len(table)} labeled rows; {target!r} holds {what}", as_json=as_json)
        options: dict[str, Any] = {
            "device": device,
            "random_state": seed,
            "verbose": sys.stderr.isatty(),
        }
        options |= {"classes": classes, "method": method, "keep_rows": keep_rows}
        pool = None if unlabeled is None else _pool(unlabeled, texts_of(table), as_json=as_json)
        if pool is None:
            _tell("unlabeled rows are made up; --unlabeled is better", as_json=as_json)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntheticPoolWarning)
            model = fit_table(table, target, pool, **options)
        for note in model.columns.notes:
            _tell(note, as_json=as_json)
        model.save(out)
        _result({"model": str(out), "kind": what, "columns": model.columns.notes}, as_json)


@app.command(epilog="Example: gpn calibrate tc.gpn held_out.csv --out tc.gpn")
def calibrate(
    model: ModelFile,
    table: TableFile,
    out: Annotated[Path, typer.Option(help="the calibrated model's file")],
    device: str = "cpu",
    as_json: AsJson = False,
) -> None:
    """Make intervals and sets of classes hold their level, by labeled rows the fit has not seen."""
    with errors(as_json=as_json):
        from gpn.tables import files as frames

        os.unlink(frames.temporary(out))
        known = _model(model, device)
        rows = frames.read(table, known.texts)
        known.calibrate(rows)
        known.save(out)
        _result({"rows": len(rows), "out": str(out)}, as_json)


@app.command(epilog="Example: gpn predict tc.gpn new.csv --out scored.csv")
def predict(
    model: ModelFile,
    table: TableFile,
    out: Annotated[Path, typer.Option(help="the table with predictions beside its rows")],
    level: Annotated[float, typer.Option(help="of the interval")] = 0.95,
    fpr: Annotated[float, typer.Option(help="share of known rows that is_ood may flag")] = 0.05,
    device: str = "cpu",
    as_json: AsJson = False,
) -> None:
    """Predictions, intervals and a flag for unknown rows; any number of rows, piece by piece."""
    with errors(as_json=as_json):
        known = _model(model, device)

        def scored(piece: "DataFrame") -> "DataFrame":
            return known.predict(piece, level, fpr)

        rows = piecewise(table, out, scored, known, say, keep=True)
        _result({"rows": rows, "out": str(out)}, as_json)


@app.command(epilog="Example: gpn sample tc.gpn new.csv -n 20 --out draws.parquet")
def sample(
    model: ModelFile,
    table: TableFile,
    out: Annotated[Path, typer.Option(help="one column per function")],
    n: Annotated[int, typer.Option("-n", min=1, help="how many functions")] = 10,
    seed: int = 0,
    device: str = "cpu",
    as_json: AsJson = False,
) -> None:
    """Functions of the posterior at every row."""
    with errors(as_json=as_json):
        known = _model(model, device)
        rows = piecewise(table, out, known.functions(n, seed), known, say, keep=False)
        _result({"rows": rows, "functions": n, "out": str(out)}, as_json)


@app.command(epilog="Example: gpn suggest tc.gpn pool.csv -n 20")
def suggest(
    model: ModelFile,
    table: TableFile,
    n: Annotated[int, typer.Option("-n", min=1, help="how many rows")] = 10,
    device: str = "cpu",
    as_json: AsJson = False,
) -> None:
    """The rows to label next, by number from 0, the most useful first."""
    with errors(as_json=as_json):
        from gpn.tables import files as frames

        known = _model(model, device)
        rows = known.suggest(frames.read(table, known.columns.categories), n).tolist()
        _result({"rows": rows}, as_json)


@app.command(epilog="Example: gpn evaluate tc.gpn test.csv --strangers other.csv")
def evaluate(
    model: ModelFile,
    table: TableFile,
    strangers: Annotated[Path | None, typer.Option(help="rows that should be flagged")] = None,
    device: str = "cpu",
    as_json: AsJson = False,
) -> None:
    """Errors, coverage and flags on labeled rows, and how well strangers are told."""
    with errors(as_json=as_json):
        from gpn.tables import files as frames

        known = _model(model, device)
        texts = known.texts
        others = None if strangers is None else frames.read(strangers, texts)
        _result(known.evaluate(frames.read(table, texts), others), as_json)


@app.command(epilog="Example: gpn report tc.gpn test.csv --pool pool.csv --out report.html")
def report(
    model: ModelFile,
    table: TableFile,
    out: Annotated[Path, typer.Option(help="the page: one HTML file that needs no network")],
    pool: Annotated[Path | None, typer.Option(help="unlabeled rows to look at, too")] = None,
    device: str = "cpu",
    as_json: AsJson = False,
) -> None:
    """A page about a model: calibration, unknown rows, and its functions to play with."""
    with errors(as_json=as_json), status(say, "reading") as tell:
        from gpn.report import write_report
        from gpn.tables import files as frames

        known = _model(model, device)
        others = None if pool is None else frames.read(pool, known.columns.categories)
        rows = frames.read(table, known.texts)
        write_report(known, rows, others, out, on_progress=tell)
        _result({"rows": len(rows), "out": str(out), "bytes": out.stat().st_size}, as_json)


@app.command(epilog="Example: gpn inspect tc.gpn")
def inspect(model: ModelFile, as_json: AsJson = False) -> None:
    """What was fitted, and what the fit found out about itself."""
    with errors(as_json=as_json):
        from gpn.report.facts import facts_of

        facts = facts_of(_model(model, "cpu"))
        checks = {name: f"{verdict}: {sentence}" for name, verdict, sentence in facts["checks"]}
        _result({**dict(facts["lines"]), **checks, "warnings": facts["warnings"]}, as_json)


@app.command(epilog="Example: gpn methods --json")
def methods(as_json: AsJson = False) -> None:
    """Every method that gpn fit --method knows."""
    from gpn.methods import names

    _result({"methods": list(names())}, as_json)


@contextmanager
def errors(*, as_json: bool) -> Iterator[None]:
    """What cannot be used is said in one line (or one object), and ends with status 1."""
    try:
        yield
    except (ValueError, TypeError, OSError, ArithmeticError, ImportError, MemoryError) as error:
        said = str(error) or type(error).__name__
        print(json.dumps({"error": said}) if as_json else f"error: {said}", file=sys.stderr)
        raise typer.Exit(1) from None


def _asks_for_classes(kind: str) -> bool:
    if kind not in ("regression", "classification"):
        raise ValueError(f"kind must be auto, regression or classification, got {kind!r}.")
    return kind == "classification"


def _pool(path: Path, texts: list[str], *, as_json: bool) -> "DataFrame":
    """The unlabeled rows, or as many at random as a fit takes of a pool on disk."""
    from gpn.core.pools.base import MAX_SAMPLED_ROWS
    from gpn.tables import files as frames

    with counting(say) as tell:
        pool, count = frames.sample(path, texts, MAX_SAMPLED_ROWS, tell)
    some = "" if len(pool) == count else f", of which {len(pool):,} are taken at random"
    _tell(f"{count:,} unlabeled rows{some}", as_json=as_json)
    return pool


def _model(path: Path, device: str) -> "TableModel":
    from gpn.saving.format import load
    from gpn.tables.model import TableModel

    if not path.is_file():
        raise ValueError(f"a model must be a file that gpn fit wrote, {path} does not exist.")
    model = load(path, device)
    if not isinstance(model, TableModel):
        raise ValueError(
            f"{path} must be a model that gpn fit wrote, it holds a {type(model).__name__} "
            "without columns; use gpn.load in Python."
        )
    return model


def _tell(text: str, *, as_json: bool) -> None:
    if not as_json:
        say.print(text, markup=False)


def _result(values: dict[str, Any], as_json: bool) -> None:  # noqa: FBT001
    if as_json:
        print(json.dumps(values))
        return
    table = Table(show_header=False, box=None)
    for name, value in values.items():
        shown = f"{value:.4f}" if isinstance(value, float) else value
        if value != []:
            text = ", ".join(map(str, value)) if isinstance(value, list) else str(shown)
            table.add_row(name, Text(text))  # a name such as "[/b]" is no markup
    Console(highlight=False).print(table)
