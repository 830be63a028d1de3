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

from gpn.cli.options import (
    AsJson,
    Columns,
    Decimal,
    Encoding,
    Fpr,
    ModelFile,
    Opened,
    Seed,
    Sep,
    TableFile,
    about_model,
    load_table_model,
)
from gpn.cli.output import (
    console,
    counted,
    errors,
    heartbeat,
    percent,
    print_note,
    print_result,
    print_rows,
    row_counter,
)

# All else is imported inside the commands: torch and pandas take seconds, `gpn --help` must not.
if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from gpn.tables.model import TableModel
    from gpn.tables.reading import Reading

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Models that know what they do not know, from few labels; unlabeled rows are optional.",
)

MAX_SHOWN_COLUMNS = 7
DRIFTED, MAX_WATCHED_ROWS = 3, 20_000  # status of gpn watch, and rows that it compares
SAID_BY_DESCRIBE = ("target", "classes", "columns", "labeled rows", "unlabeled rows")
MANY_FLAGGED = 3  # times as many as by design, beyond which gpn predict says where to look


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
    target: Annotated[str, typer.Option(help="the column to predict; blank in unlabeled rows")],
    out: Annotated[Path, typer.Option(help="the model file to write")],
    unlabeled: Annotated[
        Path | None, typer.Option(help="a table of unlabeled rows: the pool")
    ] = None,
    kind: Annotated[str, typer.Option(help="auto, regression or classification")] = "auto",
    drop: Annotated[Columns, typer.Option(help="a column not to read; repeat for more")] = None,
    id_: Annotated[Columns, typer.Option("--id", help="a column that names the rows")] = None,
    keep: Annotated[Columns, typer.Option(help="a column to read though it seems useless")] = None,
    date: Annotated[Columns, typer.Option(help="a column of dates, as in 'day=%d/%m/%Y'")] = None,
    sep: Sep = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    method: Annotated[str, typer.Option(help="gpn methods lists them")] = "gpn",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, ...")] = "auto",
    seed: Seed = 0,
    keep_rows: Annotated[
        bool,
        typer.Option(
            "--keep-rows/--forget-rows",
            help="store up to 2,000 labeled rows, for explain and report",
        ),
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Learn to predict a column, and to flag rows that are unlike the labeled ones."""
    with errors(as_json=as_json):
        from gpn.estimators.validation import SyntheticPoolWarning
        from gpn.tables.describe import summary_lines
        from gpn.tables.files import check_writable, read_table, text_columns
        from gpn.tables.model import fit_table
        from gpn.tables.reading import Reading

        check_writable(out)
        note = partial(print_note, as_json=as_json)
        reading = Reading(sep or "", decimal or ".", encoding or "")
        table = read_table(labeled, reading=reading)
        classes, sentences = _labels(table, target, reading, classes=_is_classification(kind))
        for sentence in sentences:
            note(sentence)
        pool = None
        if unlabeled is not None:
            texts = text_columns(table)
            pool = _sampled_rows(unlabeled, texts, reading, as_json=as_json, kind="unlabeled ")
        elif len(sentences) == 1:
            note("no --unlabeled rows: synthetic ones take their place")
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
        for each in notes:
            note(each)
        if any(each.endswith("left out") for each in notes):
            note("--keep NAME reads a column that is left out")
        model.save(out)
        assert model.record is not None
        summary = model.record.summary
        if as_json:
            content = "classes" if classes else "numbers"
            result = {"model": str(out), "kind": content, "columns": notes, "summary": summary}
        else:
            result = {"model": str(out), **dict(summary_lines(summary))}
        print_result(result, as_json=as_json)


def _labels(
    table: "pd.DataFrame", target: str, reading: "Reading", *, classes: bool | None
) -> tuple[bool, list[str]]:
    """Whether the target holds classes, and sentences about the rows with a label and without."""
    from gpn.columns.encoder import missing_texts
    from gpn.tables.target import is_class, split_unlabeled, target_column

    known, blank = split_unlabeled(table, target)
    if classes is None:
        classes = is_class(target_column(known, target), reading.decimal)
    content = "classes" if classes else "numbers"
    sentences = [f"{counted(len(known), 'labeled row')}; {target!r} holds {content}"]
    if len(blank):
        without = f"{counted(len(blank), 'row')} without {target!r}{missing_texts(blank[target])}"
        sentences.append(f"{without}: taken as unlabeled")
    return classes, sentences


@about_model(app, "gpn calibrate tc.gpn held_out.csv --out tc.gpn")
def calibrate(
    opened: Opened,
    table: TableFile,
    out: Annotated[Path, typer.Option(help="the calibrated model file to write")],
    target_rows: Annotated[
        Path | None, typer.Option(help="unlabeled rows like those to predict")
    ] = None,
) -> None:
    """Calibrate intervals and sets of classes by labeled rows that the fit has not seen."""
    from gpn.tables.describe import calibration_lines
    from gpn.tables.files import check_writable

    check_writable(out)
    model = opened.model
    rows = opened.labeled_rows(table)
    target = None if target_rows is None else opened.read(target_rows)
    with opened.busy("calibrating"), warnings.catch_warnings():
        before = model.evaluate(rows)
        _ignore_unseen_values()  # said once is enough
        model.calibrate(rows, target)
        after = model.evaluate(rows)
    model.save(out)
    result: dict[str, Any] = {"rows": len(rows), "out": str(out)}
    if target is not None:
        result["effective_rows"] = round(model.estimator.calibration_.effective_rows, 1)
    if opened.as_json:
        result |= {"before": _of_intervals(before), "after": _of_intervals(after)}
    else:
        result |= dict(calibration_lines(before, after, is_target=target is not None))
    opened.print(result)


def _of_intervals(found: dict[str, Any]) -> dict[str, Any]:
    """The coverage and the size of intervals, or of sets of classes, among metrics."""
    return {name: value for name, value in found.items() if name.endswith("_95")}


@about_model(app, "gpn predict tc.gpn new.csv --out scored.csv")
def predict(
    opened: Opened,
    table: TableFile,
    out: Annotated[Path, typer.Option(help="the table to write, with predictions appended")],
    level: Annotated[float, typer.Option(help="probability that an interval covers")] = 0.95,
    fpr: Fpr = 0.05,
    explain: Annotated[
        bool, typer.Option("--explain", help="add a column that says why a row is flagged")
    ] = False,
    engine: Annotated[
        str, typer.Option(help="local, ray or dask: who scores a folder of Parquet files")
    ] = "local",
) -> None:
    """Predictions, intervals and OOD flags, in chunks: the table may be of any length.

    A folder of Parquet files becomes a folder of the same names, by this process, Ray or Dask.

    Numbers get mean, std (of the function alone), lower and upper (of a new label), ood_score,
    is_ood and std_total (of a new label); classes a probability each, and their entropy.
    """
    from gpn.tables.engines.folders import score_folder
    from gpn.tables.engines.scorer import Scorer
    from gpn.tables.scoring import score_table

    model, as_json = opened.model, opened.as_json
    _check_engine(table, engine, explain=explain)
    with row_counter(as_json=as_json) as on_rows, opened.busy("predicting"):
        if table.is_dir():
            scorer = Scorer(opened.path, level=level, fpr=fpr, shipped=True)
            found = score_folder(scorer, table, out, engine, on_rows)
        else:
            found = score_table(
                model,
                table,
                out,
                level=level,
                fpr=fpr,
                why=partial(_why, model, fpr=fpr) if explain else None,
                on_rows=on_rows,
                reading=opened.reading,
            )
    n_rows, counts = found.rows, {"flagged": found.flagged, "unseen": found.unseen}
    result: dict[str, Any] = {"rows": n_rows, **counts, "out": str(out)}
    if not as_json:
        flagged, unseen = counts["flagged"], counts["unseen"]
        by_design = f"by design about {100 * fpr:g} % of known rows are"
        result["flagged"] = f"{flagged:,} ({percent(flagged / n_rows)}), see is_ood; {by_design}"
        result["unseen"] = f"{counted(unseen, 'row')} with a value that the fit has not seen"
    opened.print(result)
    if counts["flagged"] > max(10, MANY_FLAGGED * fpr * n_rows):
        opened.note(
            f"many are flagged: gpn watch {opened.path} {table} says which columns have changed"
            + ("" if explain else ", --explain why each row is flagged")
        )


def _check_engine(table: Path, engine: str, *, explain: bool) -> None:
    """Raise where an option does not go with a folder, or with a single table."""
    if table.is_dir() and explain:
        raise ValueError("--explain must go with one table, got a folder; leave it out.")
    if engine != "local" and not table.is_dir():
        raise ValueError(
            f"--engine {engine} must go with a folder of Parquet files, got {table}; leave it out, "
            "or split the table into files."
        )


def _why(
    model: "TableModel", table: "pd.DataFrame", flagged: "NDArray[np.bool_]", *, fpr: float
) -> list[str]:
    """Why each flagged row of a chunk is flagged."""
    if not flagged.any():
        return []
    return ["; ".join(map(str, row)) for row in _explained(model, table[flagged], fpr)]


def _explained(model: "TableModel", table: "pd.DataFrame", fpr: float = 0.05) -> Any:
    from gpn.tables.explain import explain_rows

    with warnings.catch_warnings():
        _ignore_unseen_values()  # predict has said it
        x = model.encoder.transform(table)
    return explain_rows(model, table, x, fpr)


@about_model(app, "gpn export tc.gpn --out tc.onnx")
def export(
    opened: Opened,
    out: Annotated[Path, typer.Option(help="the ONNX file to write")],
    level: Annotated[float, typer.Option(help="probability that an interval covers")] = 0.95,
    fpr: Fpr = 0.05,
) -> None:
    """Write the model as an ONNX graph, from the columns to all that gpn predict writes.

    For models of numbers by columns of numbers; others are refused, with the reason.
    """
    from gpn.tables.files import check_writable

    check_writable(out)
    opened.model.export_onnx(out, level=level, fpr=fpr)
    names = opened.model.encoder.names
    opened.print({"columns": names, "bytes": out.stat().st_size, "out": str(out)})


@about_model(app, "gpn explain tc.gpn new.csv --row 17")
def explain(
    opened: Opened,
    table: TableFile,
    row: Annotated[int, typer.Option(min=0, help="its number; the first row is 0")],
    fpr: Fpr = 0.05,
) -> None:
    """Which columns make a row unlike the labeled ones, and what similar labeled rows have."""
    from gpn.tables.describe import naming_columns

    model, rows = opened.model, opened.read(table)
    if row >= len(rows):
        raise ValueError(f"--row must be below {len(rows)}, the rows of {table}, got {row}.")
    one = rows.iloc[[row]]
    score = model.predict(one, fpr=fpr).iloc[0]
    (shifts,) = _explained(model, one, fpr)
    limit = model.estimator.threshold(fpr)
    if opened.as_json:
        result = {"row": row, "is_ood": bool(score["is_ood"]), "score": score["ood_score"]}
        opened.print({**result, "threshold": limit, "columns": [vars(s) for s in shifts]})
        return
    names = [str(one[name].iloc[0]) for name in naming_columns(model, rows)]
    which = f"row {row} ({', '.join(names)})" if names else f"row {row}"
    flag = "is flagged" if score["is_ood"] else "is not flagged"
    print(f"{which} {flag}: its score is {score['ood_score']:.3g}, the threshold {limit:.3g}")
    if shifts:
        heads = ["column", "value", "near labeled rows", "score with theirs"]
        lines = [
            [s.column, s.value, s.usual, f"{s.score:.3g}"]
            if s.usual is not None
            else [s.column, f"{s.value} (never seen)", "", ""]
            for s in shifts
        ]
        print_rows(heads, lines)
    elif score["is_ood"]:
        print("no single column explains it: its values are unusual together")


@about_model(app, "gpn sample tc.gpn new.csv -n 20 --out draws.parquet")
def sample(
    opened: Opened,
    table: TableFile,
    out: Annotated[Path, typer.Option(help="the table to write, one column per function")],
    n: Annotated[int, typer.Option("-n", min=1, help="how many functions")] = 10,
    seed: Seed = 0,
) -> None:
    """Draw functions of the posterior, and evaluate them at every row."""
    from gpn.tables.files import map_table

    model = opened.model
    drawn = model.functions(n, seed)
    with row_counter(as_json=opened.as_json) as on_rows, opened.busy("sampling"):
        n_rows = map_table(
            table,
            out,
            drawn,
            model.encoder,
            append=False,
            on_rows=on_rows,
            reading=opened.reading,
        )
    opened.print({"rows": n_rows, "functions": n, "out": str(out)})


@about_model(app, "gpn suggest tc.gpn pool.csv -n 20 --out to_label.csv")
def suggest(
    opened: Opened,
    table: TableFile,
    n: Annotated[int, typer.Option("-n", min=1, help="how many rows")] = 10,
    out: Annotated[Path | None, typer.Option(help="a table of these rows to write")] = None,
) -> None:
    """The rows to label next, the most useful first."""
    from gpn.tables.describe import naming_columns
    from gpn.tables.files import check_writable, table_writer

    if out is not None:
        check_writable(out)
    model, rows = opened.model, opened.read(table)
    with opened.busy("choosing"):
        picked = model.suggest(rows, n).tolist()
    chosen = rows.iloc[picked]
    if out is not None:
        with table_writer(out) as writer:
            writer.write(chosen)
    flagged = model.predict(chosen)["is_ood"].tolist()
    names = naming_columns(model, rows)
    shown = chosen[[*names, *(name for name in model.encoder.names if name not in names)]]
    if opened.as_json:
        values = shown.astype(object).where(shown.notna(), None).map(_plain).to_dict("records")
        opened.print({"rows": picked, "values": values, "is_ood": flagged})
        return
    texts = shown.iloc[:, :MAX_SHOWN_COLUMNS].astype(object).fillna("").astype(str)
    cells = [[str(i), *row] for i, row in zip(picked, texts.to_numpy(), strict=True)]
    print_rows(["row", *map(str, texts.columns)], cells)
    opened.note(_row_numbers(table, picked[0]))
    if any(flagged):
        opened.note(f"{sum(flagged)} of these are flagged; gpn explain says why, before you label")
    if out is not None:
        opened.note(f"{counted(len(picked), 'row')} in {out}")


def _row_numbers(path: Path, example: int) -> str:
    """What a number of a row means in a file."""
    if path.suffix in (".parquet", ".pq"):
        return "rows count from 0"
    return f"rows count from 0, below the line of names: row {example} is line {example + 2}"


def _plain(value: Any) -> Any:
    """A cell as JSON can hold it."""
    return value.item() if hasattr(value, "item") else value if value is None else str(value)


@about_model(app, "gpn evaluate tc.gpn test.csv --ood other.csv")
def evaluate(
    opened: Opened,
    table: TableFile,
    ood: Annotated[Path | None, typer.Option(help="a table of rows that should be flagged")] = None,
    strangers: Annotated[Path | None, typer.Option(hidden=True)] = None,
) -> None:
    """Errors and coverage on labeled rows, and how well OOD rows are detected."""
    from gpn.tables.describe import metric_lines

    if strangers is not None:
        warnings.warn("--strangers is now called --ood.", FutureWarning, stacklevel=2)
    path = ood or strangers
    ood_rows = None if path is None else opened.read_labeled(path)
    rows = opened.read_labeled(table)
    with opened.busy("evaluating"):
        found = opened.model.evaluate(rows, ood_rows)
    opened.print(found if opened.as_json else dict(metric_lines(found)))


@about_model(app, "gpn watch tc.gpn tonight.csv || mail -s drift me@example.org")
def watch(
    opened: Opened,
    table: TableFile,
    reference: Annotated[
        Path | None, typer.Option(help="rows to compare with, in place of those of the fit")
    ] = None,
    level: Annotated[float, typer.Option(help="of the intervals of known labels")] = 0.95,
    fpr: Fpr = 0.05,
    false_alarms: Annotated[
        float, typer.Option(help="probability of status 3 where nothing has changed")
    ] = 0.01,
) -> None:
    """Do new rows still look like those of the fit? Exit status 0: yes; 3: no, they drifted.

    Known labels in the target's column are compared with their intervals; blank cells are not
    known yet.
    """
    sampled = partial(
        _sampled_rows,
        texts=opened.model.texts,
        reading=opened.reading,
        most=MAX_WATCHED_ROWS,
        as_json=opened.as_json,
    )
    rows = sampled(table)
    known = None if reference is None else sampled(reference)
    with opened.busy("comparing"), warnings.catch_warnings():
        _ignore_unseen_values()  # they are a check of their own
        found = opened.model.drift(rows, known, fpr=fpr, level=level, false_alarms=false_alarms)
    if opened.as_json:
        opened.print(found.to_dict())
    else:
        print("\n".join(found.sentences()))
    if found.has_drifted:
        raise typer.Exit(DRIFTED)


def _ignore_unseen_values() -> None:
    from gpn.columns.encoder import UnseenWarning

    warnings.simplefilter("ignore", UnseenWarning)


@about_model(app, "gpn report tc.gpn test.csv --pool pool.csv --out report.html")
def report(
    opened: Opened,
    table: TableFile,
    out: Annotated[Path, typer.Option(help="the page to write: one HTML file, no network needed")],
    pool: Annotated[Path | None, typer.Option(help="a table of unlabeled rows to include")] = None,
) -> None:
    """An interactive page about a model: errors, calibration, OOD rows, and its functions."""
    with console.status("reading") as shown:
        from gpn.report import write_report

        unlabeled = None if pool is None else opened.read(pool)
        rows = opened.labeled_rows(table)
        with opened.busy("writing the report"):
            write_report(opened.model, rows, unlabeled, out, on_progress=shown.update)
    opened.print({"rows": len(rows), "out": str(out), "bytes": out.stat().st_size})


@app.command(epilog="Example: gpn inspect tc.gpn --details")
def inspect(
    model: ModelFile,
    details: Annotated[bool, typer.Option("--details", help="more about the method")] = False,
    as_json: AsJson = False,
) -> None:
    """What a model predicts, from what, how well, and what the fit warned of."""
    with errors(as_json=as_json):
        from gpn.report.facts import facts_of
        from gpn.tables.describe import describe

        loaded = load_table_model(model, "cpu")
        result: dict[str, Any] = {} if as_json else describe(loaded)
        if as_json or details:
            facts = facts_of(loaded, every_check=as_json)
            checks = {name: f"{verdict}: {sentence}" for name, verdict, sentence in facts["checks"]}
            known = () if as_json else SAID_BY_DESCRIBE
            lines = {name: text for name, text in facts["lines"] if name not in known}
            result |= {**lines, **checks, "warnings": facts["warnings"]}
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
