"""How a CSV file is written: its separator, decimal mark and encoding, said or found."""

import codecs
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from gpn.columns.column_types import TableError
from gpn.core.warnings import GPNWarning, warn_caller
from gpn.saving.validation import check

BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
SEPARATORS = (",", ";", "\t", "|")
NAMED_SEPARATORS = {"tab": "\t", "\\t": "\t", "space": " "}
MAX_CONTROL_SHARE = 0.01  # of the bytes of a text that are neither letters nor white space


class ReadingWarning(GPNWarning):
    """A file is not plain UTF-8 with commas, and is read in the way that seems right."""


@dataclass(frozen=True)
class Reading:
    """Separator, decimal mark and encoding; an empty text means that the file decides."""

    sep: str = ""
    decimal: str = "."
    encoding: str = ""

    def __post_init__(self) -> None:
        if len(self.sep) > 1 and self.sep not in NAMED_SEPARATORS:
            raise TableError(f"a separator must be one character, or tab, got {self.sep!r}.")
        object.__setattr__(self, "sep", NAMED_SEPARATORS.get(self.sep, self.sep))
        if self.decimal not in (".", ","):
            raise TableError(f"a decimal mark must be . or , got {self.decimal!r}.")
        if self.decimal == self.sep:
            raise TableError(f"separator and decimal mark must differ, got {self.sep!r} for both.")
        if self.encoding:
            try:
                codecs.lookup(self.encoding)
            except LookupError as error:
                raise TableError(
                    f"an encoding must be one that Python knows, got {self.encoding!r}; try "
                    "utf-8, latin-1 or utf-16."
                ) from error

    def resolved(self, path: Path, start: bytes) -> "Reading":
        """With all that was left open decided by how the file begins."""
        encoding = self.encoding or _encoding(path, start)
        header = _first_line(start, encoding)
        sep = self.sep or _separator(path, header, self.decimal)
        return replace(self, sep=sep, encoding=encoding)

    def to_dict(self) -> dict[str, str]:
        """What a model file holds."""
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: Any) -> "Reading":
        """The reading that `to_dict` wrote; every value is checked."""
        named = isinstance(fields, dict) and set(fields) <= {"sep", "decimal", "encoding"}
        right = named and all(type(value) is str for value in fields.values())
        check(right, "reading must have sep, decimal and encoding", fields)
        return cls(**fields)


def _encoding(path: Path, start: bytes) -> str:
    for mark, name in BYTE_ORDER_MARKS.items():
        if start.startswith(mark):
            if name == "utf-16":
                warn_caller(f"{path.name} is read as UTF-16.", ReadingWarning)
            return name
    try:
        codecs.getincrementaldecoder("utf-8")().decode(start)
        return "utf-8"
    except UnicodeDecodeError as error:
        control = sum(byte < 9 or 13 < byte < 32 for byte in start)
        if control > MAX_CONTROL_SHARE * len(start):
            raise TableError(
                f"{path} must be a text in UTF-8, Latin-1 or UTF-16, got bytes that are none of "
                f"these ({error.reason} at byte {error.start}); say --encoding."
            ) from error
        warn_caller(
            f"{path.name} is no UTF-8 ({start[error.start : error.start + 1]!r} at byte "
            f"{error.start:,}) and is read as Latin-1; if that is wrong, use --encoding.",
            ReadingWarning,
        )
        return "cp1252" if _decodes(start, "cp1252") else "latin-1"


def _decodes(content: bytes, encoding: str) -> bool:
    try:
        content.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True


def _first_line(start: bytes, encoding: str) -> str:
    text = codecs.getincrementaldecoder(encoding)(errors="replace").decode(start)
    return text.lstrip("\r\n").partition("\n")[0]


def _separator(path: Path, header: str, decimal: str) -> str:
    """The comma, unless the first line has none and has another separator."""
    if "," in header and decimal != ",":
        return ","
    counts = {sep: header.count(sep) for sep in SEPARATORS if sep != decimal}
    best = max(counts, key=lambda sep: counts[sep])
    if counts[best] == 0:
        return "," if decimal != "," else ";"
    if best != "," and not path.name.endswith((".tsv", ".tsv.gz")):
        name = "a tab" if best == "\t" else repr(best)
        warn_caller(f"the cells of {path.name} are separated by {name}.", ReadingWarning)
    return best
