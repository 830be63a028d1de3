"""The warning of categories that a model has not seen."""

from gpn.core.diagnostic import GPNWarning

MOST_SHOWN = 5


class UnseenWarning(GPNWarning):
    """Rows hold values of a category that the labeled rows of the fit do not hold."""

    def __init__(self, name: str, rows: int, total: int, example: str, known: list[str]) -> None:
        super().__init__(name, rows, total, example, known)
        self.name, self.rows, self.total = name, rows, total
        self.example, self.known = example, known

    def plus(self, other: "UnseenWarning") -> "UnseenWarning":
        """The warning of this piece of a table and another."""
        rows, total = self.rows + other.rows, self.total + other.total
        return UnseenWarning(self.name, rows, total, self.example, self.known)

    def of(self, total: int) -> "UnseenWarning":
        """The same rows of a table with `total`."""
        return UnseenWarning(self.name, self.rows, total, self.example, self.known)

    def __str__(self) -> str:
        more = f" and {len(self.known) - MOST_SHOWN} more" * (len(self.known) > MOST_SHOWN)
        known = ", ".join(f"{text!r:.100}" for text in self.known[:MOST_SHOWN])
        return (
            f"{self.name!r}: {self.rows:,} of {self.total:,} rows hold values that the fit has not "
            f"seen, such as {self.example!r:.100}; it knows {known}{more}. They count as none of "
            "these; correct them, or fit again with labeled rows that hold them."
        )
