"""The paper's tables 1 to 3 with our results, from the result files alone.

`table` has the paper's columns, `extra_table` those that go beyond it.
"""

from itertools import zip_longest
from typing import Any, NamedTuple

from experiments import harness
from experiments.harness import markdown
from experiments.paper.plans import PLANS

LABELS = {
    "dropout": "Dropout",
    "dkl": "DKL GP",
    "sngp": "SNGP",
    "ensemble-pr": "Ensemble, PR",
    "ensemble-or": "Ensemble, OR",
    "ensemble": "Ensemble, plain",
    "gp": "Exact GP",
    "gpn-paper": "GPN, paper preset",
    "gpn": "**GPN, ours**",
}


class Column(NamedTuple):
    """A column of a table: its head, and how its metric is printed."""

    head: str
    metric: str
    decimals: int
    percent: bool = False


REGRESSION = (
    Column("ID loss", "id_loss", 3),
    Column("ID CI-width", "id_width", 2),
    Column("ID CI-correct", "id_coverage", 1, percent=True),
    Column("OOD CI-correct", "ood_coverage", 1, percent=True),
    Column("OOD AUC", "ood_auc", 3),
    Column("NLL", "nll", 2),
)
CLASSES = (
    Column("accuracy", "accuracy", 2, percent=True),
    Column("ID entropy", "id_entropy", 3),
    Column("OOD entropy", "ood_entropy", 3),
    Column("OOD AUC", "ood_auc", 4),
)
LIKELIHOOD = (Column("NLL", "nll", 3), Column("ECE", "ece", 3))
EXTRA_REGRESSION = (
    Column("OOD AUPR", "ood_aupr", 3),
    Column("OOD FPR95", "ood_fpr95", 1, percent=True),
    Column("ID calibration error", "ece", 3),
)
EXTRA_CLASSES = (
    Column("AUC", "ood_auc", 4),
    Column("AUPR", "ood_aupr", 4),
    Column("FPR95", "ood_fpr95", 2, percent=True),
    Column("AUC by entropy", "ood_auc_entropy", 4),
    Column("AUC by mutual information", "ood_auc_mutual_information", 4),
    Column("AUC by logit variance", "ood_auc_logit_variance", 4),
)
POOL_OOD = {"mnist": "Fashion-MNIST", "cifar10": "SVHN"}
UNSEEN = {"mnist": ("KMNIST", "kmnist"), "cifar10": ("textures", "textures")}
# The paper's own numbers: loss, width, (none), OOD CI-correct, AUC; accuracy, entropies, AUC.
PAPER: dict[str, dict[str, tuple[str, ...]]] = {
    "superconductor": {
        "dropout": ("0.11", "0.32", "", "15.9 %", "0.58"),
        "dkl": ("0.13", "0.74", "", "34.1 %", "0.50"),
        "sngp": ("0.12", "1.45", "", "86.0 %", "0.82"),
        "ensemble-pr": ("0.12", "0.26", "", "84.7 %", "0.92"),
        "ensemble-or": ("0.12", "0.26", "", "76.5 %", "0.95"),
        "gpn-paper": ("0.12", "0.32", "", "84.8 %", "0.96"),
    },
    "mnist": {
        "dropout": ("98.9 %", "0.009", "0.444", "0.97"),
        "dkl": ("98.9 %", "0.091", "1.223", "0.99"),
        "sngp": ("98.5 %", "2.300", "2.300", "0.99"),
        "ensemble-pr": ("99.1 %", "0.056", "0.862", "0.97"),
        "ensemble-or": ("99.1 %", "0.070", "2.075", "1.00"),
        "gpn-paper": ("99.1 %", "0.280", "2.032", "1.00"),
    },
    "cifar10": {
        "dropout": ("64.8 %", "0.103", "0.233", "0.71"),
        "dkl": ("79.3 %", "0.027", "0.372", "0.76"),
        "sngp": ("78.7 %", "0.375", "0.847", "0.79"),
        "ensemble-pr": ("76.4 %", "0.596", "0.640", "0.49"),
        "ensemble-or": ("76.3 %", "0.468", "2.090", "0.91"),
        "gpn-paper": ("75.8 %", "0.629", "2.246", "0.96"),
    },
}


def table(task: str) -> str:
    """Markdown: our mean ± standard deviation, the paper's numbers in brackets."""
    columns = REGRESSION
    if task in UNSEEN:
        shown, name = UNSEEN[task]
        unseen = Column(f"AUC, unseen {shown}", f"ood_auc_unseen_{name}", 4)
        columns = (*CLASSES, unseen, *LIKELIHOOD)
    heads = ["method", *(column.head for column in columns)]
    return markdown(heads, [_row(task, method, columns) for method in PLANS[task].methods])


def extra_table(task: str) -> str:
    """Markdown: the metrics beyond the paper's; for classes first the pool's OOD set."""
    methods = PLANS[task].methods
    if task not in UNSEEN:
        heads = ["method", *(column.head for column in EXTRA_REGRESSION)]
        return markdown(heads, [_row(task, m, EXTRA_REGRESSION, paper=False) for m in methods])
    shown, name = UNSEEN[task]
    rows = []
    for ood, suffix in {POOL_OOD[task]: "", f"{shown}, unseen": f"_unseen_{name}"}.items():
        columns = tuple(c._replace(metric=c.metric + suffix) for c in EXTRA_CLASSES)
        rows += [[ood, *_row(task, method, columns, paper=False)] for method in methods]
    return markdown(["OOD set", "method", *(column.head for column in EXTRA_CLASSES)], rows)


def tables(task: str) -> str:
    """Both tables of a task."""
    return f"{table(task)}\n\n{extra_table(task)}"


def _row(task: str, method: str, columns: tuple[Column, ...], *, paper: bool = True) -> list[str]:
    report = harness.load(harness.RESULTS / task / f"{method}.json")
    theirs = PAPER.get(task, {}).get(method, ()) if paper else ()
    pairs = zip_longest(columns, theirs, fillvalue="")
    return [LABELS[method], *(_cell(report, column, number) for column, number in pairs)]


def _cell(report: dict[str, Any] | None, column: Column, paper: str) -> str:
    in_brackets = f" ({paper})" if paper else ""
    if report is None:
        return f"not run{in_brackets}"
    if column.metric not in report["metrics"]:
        return "not measured"
    value = report["metrics"][column.metric]
    scale, unit = (100, " %") if column.percent else (1, "")
    mean, std = scale * value["mean"], scale * value["std"]
    return f"{mean:.{column.decimals}f} ± {std:.{column.decimals}f}{unit}{in_brackets}"
