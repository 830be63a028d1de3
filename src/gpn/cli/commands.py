"""The commands.

Status 0: done; 1: the data or a file cannot be used; 2: a wrong option; 3: `gpn watch` found drift;
130: stopped by Ctrl-C.
"""

import sys
import warnings
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpn.cli.output import (
    console,
    counted,
    errors,
    heartbeat,
    print_note,
    print_result,
    print_rows,
    row_counter,
)

# All else is imported inside the commands: torch and pandas take seconds, `gpn --help` must not.
if TYPE_CHECKING:
    import pandas as pd

    from gpn.tables.model import TableModel
    from gpn.tables.reading import Reading

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Models that know what they do not know, from few labels and much unlabeled data.",
)

ModelFile = Annotated[Path, typer.Argument(help="a model that gpn fit wrote")]
TableFile = Annotated[Path, typer.Argument(help="a table: .csv, .tsv, .csv.gz or .parquet")]
Sep = Annotated[str | None, typer.Option(help="what separates cells: ';', tab; else found")]
Decimal = Annotated[str | None, typer.Option(help="the decimal mark of numbers: '.' or ','")]
Encoding = Annotated[str | None, typer.Option(help="of the file: utf-8, latin-1; else found")]
Columns = list[str] | None
Device = Annotated[str, typer.Option(help="cpu, cuda, ...")]
Seed = Annotated[int, typer.Option(help="of the random numbers")]
MAX_SHOWN_COLUMNS = 7
DRIFTED, MAX_WATCHED_ROWS = 3, 20_000  # status of gpn watch, and rows that it compares
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
    target: Annotated[str, typer.Option(help="the column to predict; blank: not labeled")],
    out: Annotated[Path, typer.Option(help="the model file to write")],
    unlabeled: Annotated[Path | None, typer.Option(help="a table of rows without labels")] = None,
    kind: Annotated[str, typer.Option(help="auto, regression or classification")] = "auto",
    drop: Annotated[Columns, typer.Option(help="a column not to read; repeat for more")] = None,
    id_: Annotated[Columns, typer.Option("--id", help="a column that names the rows")] = None,
    keep: Annotated[Columns, typer.Option(help="a column to read though it seems useless")] = None,
    date: Annotated[Columns, typer.Option(help="a column of dates, as in 'day=%d/%m/%Y'")] = None,
    sep: Sep = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
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
        from gpn.estimators.validation import SyntheticPoolWarning
        from gpn.tables.describe import summary_lines
        from gpn.tables.files import check_writable, read_table, text_columns
        from gpn.tables.model import fit_table
        from gpn.tables.reading import Reading
        from gpn.tables.target import is_class, split_unlabeled, target_column

        check_writable(out)
        reading = Reading(sep or "", decimal or ".", encoding or "")
        table = read_table(labeled, reading=reading)
        classes = _is_classification(kind)
        known, blank = split_unlabeled(table, target)
        if classes is None:
            classes = is_class(target_column(known, target), reading.decimal)
        content = "classes" if classes else "numbers"
        labels = f"{counted(len(known), 'labeled row')}; {target!r} holds {content}"
        print_note(labels, as_json=as_json)
        if len(blank):
            note = f"{counted(len(blank), 'row')} without {target!r}: taken as unlabeled"
            print_note(note, as_json=as_json)
        pool = None
        if unlabeled is not None:
            texts = text_columns(table)
            pool = _sampled_rows(unlabeled, texts, reading, as_json=as_json, kind="unlabeled ")
        elif not len(blank):
            print_note("no --unlabeled rows: synthetic ones take their place", as_json=as_json)
        with warnings.catch_warnings(), heartbeat("fitting", as_json=as_json):
            warnings.simplefilter("ignore", SyntheticPoolWarning)
            model = fit_table(
                table,
                target,
                pool,
                classes=classes,
                method=method,
                keep_rows=keep_rows,
                drop=drop or (),
                ids=id_ or (),
                keep=keep or (),
                dates=_dates(date or []),
                reading=reading,
                device=device,
                random_state=seed,
                verbose=sys.stderr.isatty(),
            )
        notes = model.encoder.notes
        for note in notes:
            print_note(note, as_json=as_json)
        if any(note.endswith("left out") for note in notes):
            print_note("--keep NAME reads a column that is left out", as_json=as_json)
        model.save(out)
        assert model.record is not None
        summary = model.record.summary
        if as_json:
            result = {"model": str(out), "kind": content, "columns": notes, "summary": summary}
        else:
            result = {"model": str(out), **dict(summary_lines(summary))}
        print_result(result, as_json=as_json)


@app.command(epilog="Example: gpn calibrate tc.gpn held_out.csv --out tc.gpn")
def calibrate(
    model: ModelFile,
    table: TableFile,
    out: Annotated[Path, typer.Option(help="the calibrated model file to write")],
    target_rows: Annotated[
        Path | None, typer.Option(help="rows like those to predict, where they differ")
    ] = None,
    sep: Sep = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Calibrate intervals and sets of classes by labeled rows that the fit has not seen."""
    with errors(as_json=as_json):
        from gpn.tables.files import check_writable, read_table

        check_writable(out)
        loaded = _load(model, device)
        reading = _reading(loaded, sep, decimal, encoding)
        rows = _labeled_rows(loaded, read_table(table, loaded.texts, reading), as_json=as_json)
        target = None
        if target_rows is not None:
            target = read_table(target_rows, loaded.encoder.texts, reading)
        with heartbeat("calibrating", as_json=as_json):
            loaded.calibrate(rows, target)
        loaded.save(out)
        result: dict[str, Any] = {"rows": len(rows), "out": str(out)}
        if target is not None:
            result["effective_rows"] = round(loaded.estimator.calibration_.effective_rows, 1)
        print_result(result, as_json=as_json)


@app.command(epilog="Example: gpn predict tc.gpn new.csv --out scored.csv")
def predict(
    model: ModelFile,
    table: TableFile,
    out: Annotated[Path, typer.Option(help="the table to write, with predictions appended")],
    level: Annotated[float, typer.Option(help="probability that an interval covers")] = 0.95,
    fpr: Annotated[
        float, typer.Option(help="share of in-distribution rows that is_ood may flag")
    ] = 0.05,
    explain: Annotated[
        bool, typer.Option("--explain", help="add a column that says why a row is flagged")
    ] = False,
    sep: Sep = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Predictions, intervals and OOD flags, in chunks: the table may be of any length."""
    with errors(as_json=as_json):
        from gpn.tables.files import map_table

        loaded = _load(model, device)
        counts = {"flagged": 0, "unseen": 0}
        scored = partial(_scored, loaded, counts, level=level, fpr=fpr, explain=explain)
        with row_counter(as_json=as_json) as on_rows, heartbeat("predicting", as_json=as_json):
            n_rows = map_table(
                table,
                out,
                scored,
                loaded.encoder,
                append=True,
                on_rows=on_rows,
                reading=_reading(loaded, sep, decimal, encoding),
            )
        result: dict[str, Any] = {"rows": n_rows, **counts, "out": str(out)}
        if not as_json:
            flagged, unseen = counts["flagged"], counts["unseen"]
            result |= {"flagged": f"{flagged:,} ({flagged / n_rows:.1%}), see is_ood"}
            result |= {"unseen": f"{counted(unseen, 'row')} with a value that the fit has not seen"}
        print_result(result, as_json=as_json)


def _scored(
    model: "TableModel",
    counts: dict[str, int],
    table: "pd.DataFrame",
    *,
    level: float,
    fpr: float,
    explain: bool,
) -> "pd.DataFrame":
    """Predictions for a chunk; `counts` grows by its flagged rows, and by those with new values."""
    found = model.predict(table, level=level, fpr=fpr)
    counts["flagged"] += int(found["is_ood"].sum())
    counts["unseen"] += found.attrs.get("n_unseen", 0)
    if not explain:
        return found
    found["why"] = ""
    flagged = found["is_ood"].to_numpy()
    if flagged.any():
        shifts = _explained(model, table[flagged], fpr)
        found.loc[flagged, "why"] = ["; ".join(map(str, row)) for row in shifts]
    return found


def _explained(model: "TableModel", table: "pd.DataFrame", fpr: float = 0.05) -> Any:
    from gpn.columns.encoder import UnseenWarning
    from gpn.tables.explain import explain_rows

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnseenWarning)  # predict has said it
        x = model.encoder.transform(table)
    return explain_rows(model, table, x, fpr)


@app.command(epilog="Example: gpn explain tc.gpn new.csv --row 17")
def explain(
    model: ModelFile,
    table: TableFile,
    row: Annotated[int, typer.Option(min=0, help="the number of the row, from 0")],
    fpr: Annotated[float, typer.Option(help="as for gpn predict")] = 0.05,
    sep: Sep = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Which columns make a row unlike the labeled ones, and what near labeled rows have there."""
    with errors(as_json=as_json):
        from gpn.tables.files import read_table

        loaded = _load(model, device)
        reading = _reading(loaded, sep, decimal, encoding)
        rows = read_table(table, loaded.encoder.texts, reading)
        if row >= len(rows):
            raise ValueError(f"--row must be below {len(rows)}, the rows of {table}, got {row}.")
        one = rows.iloc[[row]]
        score = loaded.predict(one, fpr=fpr).iloc[0]
        (shifts,) = _explained(loaded, one, fpr)
        limit = loaded.estimator.threshold(fpr)
        if as_json:
            result = {"row": row, "is_ood": bool(score["is_ood"]), "score": score["ood_score"]}
            print_result(
                {**result, "threshold": limit, "columns": [vars(s) for s in shifts]}, as_json=True
            )
            return
        flag = "is flagged" if score["is_ood"] else "is not flagged"
        print(f"row {row} {flag}: its score is {score['ood_score']:.3f}, the limit {limit:.3f}")
        if shifts:
            heads = ["column", "value", "near labeled rows", "score with that"]
            lines = [[s.column, s.value, s.usual or "never seen", f"{s.score:.3f}"] for s in shifts]
            print_rows(heads, lines)
        elif score["is_ood"]:
            print("no single column explains it: its values are unusual together")


@app.command(epilog="Example: gpn sample tc.gpn new.csv -n 20 --out draws.parquet")
def sample(
    model: ModelFile,
    table: TableFile,
    out: Annotated[Path, typer.Option(help="the table to write, one column per function")],
    n: Annotated[int, typer.Option("-n", min=1, help="how many functions")] = 10,
    sep: Sep = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    seed: Seed = 0,
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Draw functions of the posterior, and evaluate them at every row."""
    with errors(as_json=as_json):
        from gpn.tables.files import map_table

        loaded = _load(model, device)
        drawn = loaded.functions(n, seed)
        with row_counter(as_json=as_json) as on_rows, heartbeat("sampling", as_json=as_json):
            n_rows = map_table(
                table,
                out,
                drawn,
                loaded.encoder,
                append=False,
                on_rows=on_rows,
                reading=_reading(loaded, sep, decimal, encoding),
            )
        print_result({"rows": n_rows, "functions": n, "out": str(out)}, as_json=as_json)


@app.command(epilog="Example: gpn suggest tc.gpn pool.csv -n 20 --out to_label.csv")
def suggest(
    model: ModelFile,
    table: TableFile,
    n: Annotated[int, typer.Option("-n", min=1, help="how many rows")] = 10,
    out: Annotated[Path | None, typer.Option(help="a table of these rows to write")] = None,
    sep: Sep = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """The rows to label next, numbered from 0, the most useful first."""
    with errors(as_json=as_json):
        from gpn.tables.files import check_writable, read_table, table_writer

        if out is not None:
            check_writable(out)
        loaded = _load(model, device)
        reading = _reading(loaded, sep, decimal, encoding)
        rows = read_table(table, loaded.encoder.texts, reading)
        with heartbeat("choosing", as_json=as_json):
            picked = loaded.suggest(rows, n).tolist()
        chosen = rows.iloc[picked]
        if out is not None:
            with table_writer(out) as write:
                write(chosen)
        shown = chosen[[n for n in (*loaded.ids, *loaded.encoder.names) if n in chosen]]
        if as_json:
            values = shown.astype(object).where(shown.notna(), None).map(_plain).to_dict("records")
            print_result({"rows": picked, "values": values}, as_json=True)
            return
        shown = shown.iloc[:, :MAX_SHOWN_COLUMNS]
        cells = [[str(i), *map(str, row)] for i, row in zip(picked, shown.to_numpy(), strict=True)]
        print_rows(["row", *map(str, shown.columns)], cells)
        if out is not None:
            print_note(f"{counted(len(picked), 'row')} in {out}", as_json=as_json)


def _plain(value: Any) -> Any:
    """A cell as JSON can hold it."""
    return value.item() if hasattr(value, "item") else value if value is None else str(value)


@app.command(epilog="Example: gpn evaluate tc.gpn test.csv --ood other.csv")
def evaluate(
    model: ModelFile,
    table: TableFile,
    ood: Annotated[Path | None, typer.Option(help="a table of rows that should be flagged")] = None,
    strangers: Annotated[Path | None, typer.Option(hidden=True)] = None,
    sep: Sep = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Errors and coverage on labeled rows, and how well OOD rows are detected."""
    with errors(as_json=as_json):
        from gpn.tables.files import read_table

        if strangers is not None:
            warnings.warn("--strangers is now called --ood.", FutureWarning, stacklevel=2)
        loaded, path = _load(model, device), ood or strangers
        reading = _reading(loaded, sep, decimal, encoding)
        ood_rows = None if path is None else read_table(path, loaded.texts, reading)
        rows = read_table(table, loaded.texts, reading)
        with heartbeat("evaluating", as_json=as_json):
            found = loaded.evaluate(rows, ood_rows)
        print_result(found, as_json=as_json)


@app.command(epilog="Example: gpn watch tc.gpn tonight.csv || mail -s drift me@example.org")
def watch(
    model: ModelFile,
    table: TableFile,
    reference: Annotated[
        Path | None, typer.Option(help="rows to compare with, in place of those of the fit")
    ] = None,
    level: Annotated[float, typer.Option(help="of the intervals that labels should lie in")] = 0.95,
    fpr: Annotated[float, typer.Option(help="as for gpn predict")] = 0.05,
    false_alarms: Annotated[
        float, typer.Option(help="probability of status 3 where nothing has changed")
    ] = 0.01,
    sep: Sep = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Do new rows still look like those of the fit? Status 0: yes; 3: no, a drift was found.

    Known labels in the target's column are compared with their intervals; blank cells are not
    known yet.
    """
    with errors(as_json=as_json):
        loaded = _load(model, device)
        reading = _reading(loaded, sep, decimal, encoding)
        texts = loaded.texts
        sample = partial(_sampled_rows, texts=texts, reading=reading, most=MAX_WATCHED_ROWS)
        rows = sample(table, as_json=as_json)
        known = None if reference is None else sample(reference, as_json=as_json)
        with heartbeat("comparing", as_json=as_json), warnings.catch_warnings():
            _ignore_unseen_values()
            found = loaded.drift(rows, known, fpr=fpr, level=level, false_alarms=false_alarms)
        if as_json:
            print_result(found.to_dict(), as_json=True)
        else:
            print("\n".join(found.sentences()))
    if found.has_drifted:
        raise typer.Exit(DRIFTED)


def _ignore_unseen_values() -> None:
    from gpn.columns.encoder import UnseenWarning

    warnings.simplefilter("ignore", UnseenWarning)  # they are a check of their own


@app.command(epilog="Example: gpn report tc.gpn test.csv --pool pool.csv --out report.html")
def report(
    model: ModelFile,
    table: TableFile,
    out: Annotated[Path, typer.Option(help="the page to write: one HTML file, no network needed")],
    pool: Annotated[Path | None, typer.Option(help="a table of unlabeled rows to include")] = None,
    sep: Sep = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """A page about a model: calibration, OOD rows, and its functions, live."""
    with errors(as_json=as_json), console.status("reading") as shown:
        from gpn.report import write_report
        from gpn.tables.files import read_table

        loaded = _load(model, device)
        reading = _reading(loaded, sep, decimal, encoding)
        unlabeled = None if pool is None else read_table(pool, loaded.encoder.texts, reading)
        rows = _labeled_rows(loaded, read_table(table, loaded.texts, reading), as_json=as_json)
        with heartbeat("writing the report", as_json=as_json):
            write_report(loaded, rows, unlabeled, out, on_progress=shown.update)
        result = {"rows": len(rows), "out": str(out), "bytes": out.stat().st_size}
        print_result(result, as_json=as_json)


@app.command(epilog="Example: gpn inspect tc.gpn --details")
def inspect(
    model: ModelFile,
    details: Annotated[bool, typer.Option("--details", help="what the method found out")] = False,
    as_json: AsJson = False,
) -> None:
    """What a model predicts, from what, how well, and what the fit warned of."""
    with errors(as_json=as_json):
        from gpn.report.facts import facts_of
        from gpn.tables.describe import describe

        loaded = _load(model, "cpu")
        result: dict[str, Any] = {} if as_json else describe(loaded)
        if as_json or details:
            facts = facts_of(loaded)
            checks = {name: f"{verdict}: {sentence}" for name, verdict, sentence in facts["checks"]}
            result |= {**dict(facts["lines"]), **checks, "warnings": facts["warnings"]}
        if as_json:
            result["summary"] = {} if loaded.record is None else loaded.record.summary
        print_result(result, as_json=as_json)


@app.command(epilog="Example: gpn methods --json")
def methods(as_json: AsJson = False) -> None:
    """Every method that gpn fit --method accepts."""
    from gpn import methods as registered

    print_result({"methods": list(registered.names())}, as_json=as_json)


def _is_classification(kind: str) -> bool | None:
    """None leaves the choice to the target's values."""
    kinds = {"auto": None, "regression": False, "classification": True}
    if kind not in kinds:
        raise ValueError(f"kind must be auto, regression or classification, got {kind!r}.")
    return kinds[kind]


def _dates(options: list[str]) -> dict[str, str]:
    """Columns and their layouts, of --date column or --date column=layout."""
    return {name: layout for name, _, layout in (option.partition("=") for option in options)}


def _reading(
    model: "TableModel", sep: str | None, decimal: str | None, encoding: str | None
) -> "Reading":
    """How the model's files are written, unless an option says otherwise."""
    from dataclasses import replace

    said = {"sep": sep, "decimal": decimal, "encoding": encoding}
    return replace(model.reading, **{name: text for name, text in said.items() if text})


def _labeled_rows(model: "TableModel", table: "pd.DataFrame", *, as_json: bool) -> "pd.DataFrame":
    """The rows with a label; others are counted."""
    from gpn.tables.target import split_unlabeled

    known, blank = split_unlabeled(table, model.target)
    if len(blank):
        note = f"{counted(len(blank), 'row')} without {model.target!r}: skipped"
        print_note(note, as_json=as_json)
    return known


def _sampled_rows(
    path: Path,
    texts: list[str],
    reading: "Reading",
    *,
    as_json: bool,
    most: int | None = None,
    kind: str = "",
) -> "pd.DataFrame":
    """The rows of a file, or as many at random as asked for; else as a fit takes of a pool."""
    from gpn.core.pools import base as pools
    from gpn.tables.files import sample_rows

    with row_counter(as_json=as_json) as on_rows:
        limit = most or pools.MAX_SAMPLED_ROWS
        rows, count = sample_rows(path, texts, limit, on_rows, reading)
    some = "" if len(rows) == count else f", of which {len(rows):,} are taken at random"
    if kind or some:
        print_note(f"{count:,} {kind}rows{some}", as_json=as_json)
    return rows


def _load(path: Path, device: str) -> "TableModel":
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
