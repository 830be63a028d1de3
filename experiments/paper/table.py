"""The paper's tables 1 to 3 with our numbers beside them, from the result files alone.

`table` is the paper's, `more` a second one of what goes beyond it.
"""

import json
from itertools import zip_longest
from typing import Any

from experiments import results
from experiments.paper.settings import PLANS

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
# Column: metric, decimals, percent or not.
REGRESSION = (
    ("ID loss", "id_loss", 3, False),
    ("ID CI-width", "id_width", 2, False),
    ("ID CI-correct", "id_coverage", 1, True),
    ("OOD CI-correct", "ood_coverage", 1, True),
    ("OOD AUC", "ood_auc", 3, False),
    ("NLL", "nll", 2, False),
)
CLASSES = (
    ("accuracy", "accuracy", 2, True),
    ("ID entropy", "id_entropy", 3, False),
    ("OOD entropy", "ood_entropy", 3, False),
    ("OOD AUC", "ood_auc", 4, False),
)
BEYOND = (("NLL", "nll", 3, False), ("ECE", "ece", 3, False))
# Beyond the paper: the same detection judged otherwise, and by other scores of the same draws.
MORE_REGRESSION = (
    ("OOD AUPR", "ood_aupr", 3, False),
    ("OOD FPR95", "ood_fpr95", 1, True),
    ("ID calibration error", "ece", 3, False),
)
MORE_CLASSES = (
    ("AUC", "ood_auc", 4, False),
    ("AUPR", "ood_aupr", 4, False),
    ("FPR95", "ood_fpr95", 2, True),
    ("AUC by entropy", "ood_auc_entropy", 4, False),
    ("AUC by mutual information", "ood_auc_mutual_information", 4, False),
    ("AUC by logit variance", "ood_auc_logit_variance", 4, False),
)
STRANGERS = {"mnist": "Fashion-MNIST", "cifar10": "SVHN"}
UNSEEN = {"mnist": ("KMNIST", "kmnist"), "cifar10": ("textures", "textures")}
# The paper's own tables: loss, width, OOD CI-correct, AUC; accuracy, entropies, AUC.
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
    """Markdown: one row per method, ours as mean ± standard deviation, the paper's in brackets."""
    columns = _columns(task)
    heads = ["method", *(head for head, *_ in columns)]
    return _markdown(heads, [_row(task, method, columns) for method in PLANS[task].methods])


def more(task: str) -> str:
    """Markdown: what goes beyond the paper, ours alone as mean ± standard deviation."""
    return _more_of_classes(task) if task in UNSEEN else _more_of_targets(task)


def _more_of_targets(task: str) -> str:
    heads = ["method", *(head for head, *_ in MORE_REGRESSION)]
    rows = [[LABELS[m], *_cells(task, m, MORE_REGRESSION)] for m in PLANS[task].methods]
    return _markdown(heads, [" | ".join(row) for row in rows])


def _more_of_classes(task: str) -> str:
    """The pool's kind of strangers first, then those that no pool held."""
    shown, name = UNSEEN[task]
    sets = {STRANGERS[task]: "", f"{shown}, unseen": f"_unseen_{name}"}
    heads = ["strangers", "method", *(head for head, *_ in MORE_CLASSES)]
    rows = [
        [strangers, LABELS[method], *_cells(task, method, MORE_CLASSES, suffix)]
        for strangers, suffix in sets.items()
        for method in PLANS[task].methods
    ]
    return _markdown(heads, [" | ".join(row) for row in rows])


def _markdown(heads: list[str], rows: list[str]) -> str:
    lines = [" | ".join(heads), " | ".join("---" for _ in heads), *rows]
    return "\n".join(f"| {line} |" for line in lines)


def _columns(task: str) -> tuple[Any, ...]:
    """The paper's columns, and ours after them: an unseen set, likelihood, calibration."""
    if task not in UNSEEN:
        return REGRESSION
    shown, name = UNSEEN[task]
    unseen = (f"AUC, unseen {shown}", f"ood_auc_unseen_{name}", 4, False)
    return (*CLASSES, unseen, *BEYOND)


def _row(task: str, method: str, columns: tuple[Any, ...]) -> str:
    theirs = PAPER.get(task, {}).get(method, ())
    metrics = _metrics(task, method)
    pairs = zip_longest(columns, theirs, fillvalue="")
    return " | ".join([LABELS[method], *(_cell(metrics, *column, own) for column, own in pairs)])


def _cells(task: str, method: str, columns: tuple[Any, ...], suffix: str = "") -> list[str]:
    """Ours alone, of the metrics with this `suffix` to their names."""
    metrics = _metrics(task, method)
    return [_cell(metrics, head, name + suffix, *how, "") for head, name, *how in columns]


def _metrics(task: str, method: str) -> dict[str, Any] | None:
    path = results.RESULTS / task / f"{method}.json"
    return json.loads(path.read_text())["metrics"] if path.exists() else None


def _cell(
    metrics: dict[str, Any] | None,
    head: str,
    name: str,
    decimals: int,
    percent: bool,  # noqa: FBT001
    paper: str,
) -> str:
    beside = f" ({paper})" if paper else ""
    if metrics is None:
        return f"not run{beside}"
    scale, unit = (100, " %") if percent else (1, "")
    if name not in metrics:
        return "not measured"
    mean, std = scale * metrics[name]["mean"], scale * metrics[name]["std"]
    return f"{mean:.{decimals}f} ± {std:.{decimals}f}{unit}{beside}"
