"""Arguments and options that commands share, and the model and the tables that they open."""

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpn.cli.output import counted, errors, heartbeat, print_note, print_result

if TYPE_CHECKING:
    import pandas as pd

    from gpn.tables.model import TableModel
    from gpn.tables.reading import Reading

ModelFile = Annotated[Path, typer.Argument(help="a model that gpn fit wrote")]
TableFile = Annotated[Path, typer.Argument(help="a table: .csv, .tsv, .csv.gz or .parquet")]
Columns = list[str] | None
Sep = Annotated[str | None, typer.Option(help="what separates cells, such as ';' or tab")]
Decimal = Annotated[str | None, typer.Option(help="the decimal mark of numbers: '.' or ','")]
Encoding = Annotated[str | None, typer.Option(help="the encoding of the file, such as latin-1")]
Device = Annotated[str, typer.Option(help="cpu, cuda, ...")]
Seed = Annotated[int, typer.Option(help="start of the random numbers")]
Fpr = Annotated[float, typer.Option(help="share of known rows that is_ood flags by mistake")]
AsJson = Annotated[bool, typer.Option("--json", help="print the result as JSON and nothing else")]


@dataclass(frozen=True)
class Opened:
    """A model that a command asks, and how it reads tables and prints results."""

    path: Path
    model: "TableModel"
    reading: "Reading"
    as_json: bool

    def read(self, path: Path) -> "pd.DataFrame":
        """A table to predict: the target's column is not looked at."""
        return self._table(path, self.model.encoder.texts)

    def read_labeled(self, path: Path) -> "pd.DataFrame":
        """A table with the target's column."""
        return self._table(path, self.model.texts)

    def _table(self, path: Path, texts: list[str]) -> "pd.DataFrame":
        from gpn.tables.files import read_table

        return read_table(path, texts, self.reading)

    def labeled_rows(self, path: Path) -> "pd.DataFrame":
        """The rows of a table with a label; others are counted."""
        from gpn.tables.target import split_unlabeled

        known, blank = split_unlabeled(self.read_labeled(path), self.model.target)
        if len(blank):
            self.note(f"{counted(len(blank), 'row')} without {self.model.target!r}: skipped")
        return known

    def busy(self, doing: str) -> AbstractContextManager[None]:
        """Lines that say that the command is still running."""
        return heartbeat(doing, as_json=self.as_json)

    def note(self, text: str) -> None:
        print_note(text, as_json=self.as_json)

    def print(self, values: dict[str, Any]) -> None:
        print_result(values, as_json=self.as_json)


def open_model(
    model: ModelFile,
    sep: Sep = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    device: Device = "cpu",
    as_json: AsJson = False,
) -> Opened:
    """The model of a file; its tables are written as those of the fit, unless an option differs."""
    from dataclasses import replace

    loaded = load_table_model(model, device)
    given = {"sep": sep, "decimal": decimal, "encoding": encoding}
    reading = replace(loaded.reading, **{name: text for name, text in given.items() if text})
    return Opened(model, loaded, reading, as_json)


def load_table_model(path: Path, device: str) -> "TableModel":
    from gpn.saving.format import load
    from gpn.tables.model import TableModel

    if not path.is_file():
        raise ValueError(f"there is no model file {path}; gpn fit --out {path} would write it.")
    model = load(path, device)
    if not isinstance(model, TableModel):
        raise ValueError(
            f"{path} must be a model that gpn fit wrote, it holds a {type(model).__name__} "
            "without columns; use gpn.load in Python."
        )
    return model


def about_model(app: typer.Typer, example: str) -> Callable[..., Any]:
    """Register a function of `Opened` and arguments of its own as a command about a model.

    The command's arguments are the model's file, then the function's own, then the options of
    `open_model`. An error is printed as one line.
    """
    model, *shared = inspect.signature(open_model).parameters.values()

    def register(function: Callable[..., None]) -> Callable[..., None]:
        _, *own = inspect.signature(function).parameters.values()

        def command(**values: Any) -> None:
            arguments = {each.name: values.pop(each.name) for each in own}
            with errors(as_json=values["as_json"]):
                function(open_model(**values), **arguments)

        parameters = [each.replace(kind=each.KEYWORD_ONLY) for each in (model, *own, *shared)]
        command.__name__, command.__doc__ = function.__name__, _paragraphs(function)
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        app.command(epilog=f"Example: {example}")(command)
        return function

    return register


def _paragraphs(function: Callable[..., None]) -> str:
    """A docstring with one line for each paragraph, which a terminal wraps at its own width."""
    paragraphs = (inspect.getdoc(function) or "").split("\n\n")
    return "\n\n".join(" ".join(text.split()) for text in paragraphs)
