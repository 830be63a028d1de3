"""The commands. Status 0: done; 1: the data or a file cannot be used; 2: a wrong option."""

import sys
import warnings
from functools import partial
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from gpn import methods as registered
from gpn.cli.output import console, errors, print_note, print_result, row_counter
from gpn.core.pools import base as pools
from gpn.estimators.validation import SyntheticPoolWarning
from gpn.report import write_report
from gpn.report.facts import facts_of
from gpn.saving.format import load
from gpn.tables.files import check_writable, map_table, read_table, sample_rows, text_columns
from gpn.tables.model import TableModel, fit_table
from gpn.tables.target import is_class, target_column

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Models that know what they do not know, from few labels and much unlabeled data.",
)

ModelFile = Annotated[Path, typer.Argument(help="a model that gpn fit wrote")]
TableFile = Annotated[Path, typer.Argument(help="a table: .csv, .csv.gz or .parquet")]
Device = Annotated[str, typer.Option(help="cpu, cuda, ...")]
Seed = Annotated[int, typer.Option(help="of the random numbers")]
AsJson = Annotated[bool, typer.Option("--json", help="print the result as JSON and nothing else")]


@app.command(epilog="Example: gpn demo --folder pictures")
def demo(
    folder: Annotated[Path, typer.Option(help="where the pictures go")] = Path("demo"),
) -> None:
    """Fit every method to six points: a table and pictures."""
    from gpn.demo import main

    main(folder)


@app.command(epilog="Example: gpn fit labeled.csv --target Tc --unlabeled pool.csv --out tc.gpn")
def fit(
    labeled: TableFile,
    target: Annotated[str, typer.Option(help="the column to predict")],
    out: Annotated[Path, typer.Option(help="the model file to write")],
    unlabeled: Annotated[Path | None, typer.Option(help="a table of rows without labels")] = None,
    kind: Annotated[str, typer.Option(help="auto, regression or classification")] = "auto",
    method: Annotated[str, typer.Option(help="see gpn methods")] = "gpn",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, ...")] = "auto",
    seed: Seed = 0,
    keep_rows: Annotated[
        bool,
        typer.Option("--keep-rows/--forget-rows", help="up to 2,000 labeled rows in the file"),
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Learn to predict a column, and to detect rows for which it cannot be predicted."""
    with errors(as_json=as_json):
        check_writable(out)
        table = read_table(labeled)
        classes = _is_classification(kind)
        if classes is None:
            classes = is_class(target_column(table, target))
        content = "classes" if classes else "numbers"
        print_note(f"{len(table)} labeled rows; {target!r} holds {content}", as_json=as_json)
        if unlabeled is None:
            pool = None
            print_note("no --unlabeled rows: synthetic ones take their place", as_json=as_json)
        else:
            pool = _sampled_pool(unlabeled, text_columns(table), as_json=as_json)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntheticPoolWarning)
            model = fit_table(
                table,
                target,
                pool,
                classes=classes,
                method=method,
                keep_rows=keep_rows,
                device=device,
                random_state=seed,
                verbose=sys.stderr.isatty(),
            )
        notes = model.encoder.notes
        for note in notes:
            print_note(note, as_json=as_json)
        model.save(out)
        print_result({"model": str(out), "kind": content, "columns": notes}, as_json=as_json)


@app.command(epilog="Example: gpn calibrate tc.gpn held_out.csv --out tc.gpn")
def calibrate(
    model: ModelFile,
    table: TableFile,
    out: Annotated[Path, typer.Option(help="the calibrated model file to write")],
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Calibrate intervals and sets of classes by labeled rows that the fit has not seen."""
    with errors(as_json=as_json):
        check_writable(out)
        loaded = _load(model, device)
        rows = read_table(table, loaded.texts)
        loaded.calibrate(rows)
        loaded.save(out)
        print_result({"rows": len(rows), "out": str(out)}, as_json=as_json)


@app.command(epilog="Example: gpn predict tc.gpn new.csv --out scored.csv")
def predict(
    model: ModelFile,
    table: TableFile,
    out: Annotated[Path, typer.Option(help="the table to write, with predictions appended")],
    level: Annotated[float, typer.Option(help="probability that an interval covers")] = 0.95,
    fpr: Annotated[
        float, typer.Option(help="share of in-distribution rows that is_ood may flag")
    ] = 0.05,
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Predictions, intervals and OOD flags, in chunks: the table may be of any length."""
    with errors(as_json=as_json):
        loaded = _load(model, device)
        scored = partial(loaded.predict, level=level, fpr=fpr)
        with row_counter() as on_rows:
            n_rows = map_table(table, out, scored, loaded.encoder, append=True, on_rows=on_rows)
        print_result({"rows": n_rows, "out": str(out)}, as_json=as_json)


@app.command(epilog="Example: gpn sample tc.gpn new.csv -n 20 --out draws.parquet")
def sample(
    model: ModelFile,
    table: TableFile,
    out: Annotated[Path, typer.Option(help="the table to write, one column per function")],
    n: Annotated[int, typer.Option("-n", min=1, help="how many functions")] = 10,
    seed: Seed = 0,
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Draw functions of the posterior, and evaluate them at every row."""
    with errors(as_json=as_json):
        loaded = _load(model, device)
        drawn = loaded.functions(n, seed)
        with row_counter() as on_rows:
            n_rows = map_table(table, out, drawn, loaded.encoder, append=False, on_rows=on_rows)
        print_result({"rows": n_rows, "functions": n, "out": str(out)}, as_json=as_json)


@app.command(epilog="Example: gpn suggest tc.gpn pool.csv -n 20")
def suggest(
    model: ModelFile,
    table: TableFile,
    n: Annotated[int, typer.Option("-n", min=1, help="how many rows")] = 10,
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """The rows to label next, numbered from 0, the most useful first."""
    with errors(as_json=as_json):
        loaded = _load(model, device)
        rows = loaded.suggest(read_table(table, loaded.encoder.categories), n)
        print_result({"rows": rows.tolist()}, as_json=as_json)


@app.command(epilog="Example: gpn evaluate tc.gpn test.csv --ood other.csv")
def evaluate(
    model: ModelFile,
    table: TableFile,
    ood: Annotated[Path | None, typer.Option(help="a table of rows that should be flagged")] = None,
    strangers: Annotated[Path | None, typer.Option(hidden=True)] = None,
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Errors and coverage on labeled rows, and how well OOD rows are detected."""
    with errors(as_json=as_json):
        if strangers is not None:
            warnings.warn("--strangers is now called --ood.", FutureWarning, stacklevel=2)
        loaded, path = _load(model, device), ood or strangers
        ood_rows = None if path is None else read_table(path, loaded.texts)
        found = loaded.evaluate(read_table(table, loaded.texts), ood_rows)
        print_result(found, as_json=as_json)


@app.command(epilog="Example: gpn report tc.gpn test.csv --pool pool.csv --out report.html")
def report(
    model: ModelFile,
    table: TableFile,
    out: Annotated[Path, typer.Option(help="the page to write: one HTML file, no network needed")],
    pool: Annotated[Path | None, typer.Option(help="a table of unlabeled rows to include")] = None,
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """A page about a model: calibration, OOD rows, and its functions, live."""
    with errors(as_json=as_json), console.status("reading") as shown:
        loaded = _load(model, device)
        unlabeled = None if pool is None else read_table(pool, loaded.encoder.categories)
        rows = read_table(table, loaded.texts)
        write_report(loaded, rows, unlabeled, out, on_progress=shown.update)
        result = {"rows": len(rows), "out": str(out), "bytes": out.stat().st_size}
        print_result(result, as_json=as_json)


@app.command(epilog="Example: gpn inspect tc.gpn")
def inspect(model: ModelFile, as_json: AsJson = False) -> None:
    """What was fitted, and what the fit found out about itself."""
    with errors(as_json=as_json):
        facts = facts_of(_load(model, "cpu"))
        checks = {name: f"{verdict}: {sentence}" for name, verdict, sentence in facts["checks"]}
        result = {**dict(facts["lines"]), **checks, "warnings": facts["warnings"]}
        print_result(result, as_json=as_json)


@app.command(epilog="Example: gpn methods --json")
def methods(as_json: AsJson = False) -> None:
    """Every method that gpn fit --method accepts."""
    print_result({"methods": list(registered.names())}, as_json=as_json)


def _is_classification(kind: str) -> bool | None:
    """None leaves the choice to the target's values."""
    kinds = {"auto": None, "regression": False, "classification": True}
    if kind not in kinds:
        raise ValueError(f"kind must be auto, regression or classification, got {kind!r}.")
    return kinds[kind]


def _sampled_pool(path: Path, texts: list[str], *, as_json: bool) -> pd.DataFrame:
    """The unlabeled rows, or as many of them at random as a fit takes of a pool on disk."""
    with row_counter() as on_rows:
        pool, count = sample_rows(path, texts, pools.MAX_SAMPLED_ROWS, on_rows)
    some = "" if len(pool) == count else f", of which {len(pool):,} are taken at random"
    print_note(f"{count:,} unlabeled rows{some}", as_json=as_json)
    return pool


def _load(path: Path, device: str) -> TableModel:
    if not path.is_file():
        raise ValueError(f"a model must be a file that gpn fit wrote, {path} does not exist.")
    model = load(path, device)
    if not isinstance(model, TableModel):
        raise ValueError(
            f"{path} must be a model that gpn fit wrote, it holds a {type(model).__name__} "
            "without columns; use gpn.load in Python."
        )
    return model
