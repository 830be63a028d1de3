"""Result files from finished problems; tables and the figure from the result files alone."""

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from experiments import harness
from experiments.testbed.agents import AGENTS
from experiments.testbed.problems import INPUTS, RATIOS, TAUS, TEMPERATURES
from experiments.testbed.run import Line, read, regression_setting_of, setting_of

FOLDER = harness.RESULTS / "testbed"
NAMES = {
    "gpn-true-prior": "Gaussian process, true prior",
    "ensemble-plus": "ensemble+",
    "epinet": "epinet",
    "ensemble": "ensemble",
    "dropout": "dropout",
    "gpn": "`GPNClassifier`, defaults",
    "mlp": "MLP",
}
COLUMNS = ["n_inputs", "ratio", "temperature", "seed", "kl_tau_1", "kl_tau_10", "seconds"]
COST_COLUMNS = [*COLUMNS[:-1], "cpu_seconds"]
DIGITS = 6
COSTS = ("ensemble-plus", "gpn-true-prior", "gpn-true-prior-few")

Problems = list[dict[str, Any]]


def collect(folder: Path) -> None:
    """One result file per agent that has finished problems in the folder."""
    baseline = {setting_of(line): line for line in read(folder / "mlp.jsonl")}
    for path in sorted(folder.glob("*.jsonl")):
        if "-regression" in path.stem or path.stem.startswith("cost-"):
            continue
        lines = sorted(read(path), key=setting_of)
        metrics = classification_metrics(lines, baseline)
        report = {
            "task": "testbed",
            "method": path.stem,
            "config": AGENTS[path.stem].config,
            "seeds": sorted({line["seed"] for line in lines}),
            "device": lines[0]["device"],
            "versions": lines[0]["versions"],
            "problems_in_one_program": max(line["shared_by"] for line in lines),
            "metrics": metrics,
            "columns": COLUMNS,
            "problems": [_row(line, COLUMNS) for line in lines],
        }
        regression = sorted(
            read(folder / f"{path.stem}-regression.jsonl"), key=regression_setting_of
        )
        if regression:
            metrics["regression_kl"] = harness.summary([line["kl"] for line in regression])
            report["regression_kl_max"] = max(line["kl"] for line in regression)
            columns = ["n_inputs", "ratio", "noise_std", "seed", "kl", "seconds"]
            report["regression"] = {
                "device": regression[0]["device"],
                "columns": columns,
                "problems": [_row(line, columns) for line in regression],
            }
        harness.save(FOLDER / f"{path.stem}.json", report, indent=None)
    costs = {name: read(folder / f"cost-{name}.jsonl") for name in COSTS}
    if all(costs.values()):
        harness.save(FOLDER / "cost.json", cost_report(costs), indent=None)


def classification_metrics(lines: Sequence[Line], baseline: dict[Any, Line]) -> dict[str, Any]:
    """Mean scores over those of the MLP on the same problems, and seconds per problem."""
    metrics = {}
    for tau in TAUS:
        key = f"kl_tau_{tau}"
        mlp = fmean(baseline[setting_of(line)][key] for line in lines)
        metrics[f"ratio_tau_{tau}"] = harness.summary([line[key] / mlp for line in lines])
    metrics["seconds_per_problem"] = harness.summary([line["seconds"] for line in lines])
    return metrics


def cost_report(costs: dict[str, list[Line]]) -> dict[str, Any]:
    """Scores and seconds of the problems that both agents finished, each fitted alone."""
    shared = set.intersection(*({setting_of(line) for line in lines} for lines in costs.values()))
    kept = {
        name: sorted((line for line in lines if setting_of(line) in shared), key=setting_of)
        for name, lines in costs.items()
    }
    return {
        "task": "testbed",
        "device": kept[COSTS[0]][0]["device"],
        "versions": kept[COSTS[0]][0]["versions"],
        "columns": COST_COLUMNS,
        "problems": {name: [_row(line, COST_COLUMNS) for line in kept[name]] for name in COSTS},
        "metrics": {
            name: {
                key: harness.summary([line[key] for line in kept[name]])
                for key in ("kl_tau_1", "kl_tau_10", "cpu_seconds")
            }
            for name in COSTS
        },
    }


def _row(line: Line, columns: Sequence[str]) -> list[float]:
    values = [line[column] for column in columns]
    return [float(f"{v:.{DIGITS}g}") if isinstance(v, float) else v for v in values]


def problems_of(agent: str) -> Problems:
    """The agent's problems, each by the names of its columns."""
    report = harness.load(FOLDER / f"{agent}.json") or {"columns": [], "problems": []}
    return [dict(zip(report["columns"], row, strict=True)) for row in report["problems"]]


def ratio(
    agent: str, tau: int, where: Callable[[dict[str, Any]], bool] = lambda row: True
) -> float:
    """The agent's mean score over the MLP's, on the problems that `where` picks."""
    key = f"kl_tau_{tau}"
    own, mlp = (
        fmean(row[key] for row in problems_of(name) if where(row)) for name in (agent, "mlp")
    )
    return own / mlp


def ratio_on_own(agent: str, tau: int) -> float:
    """`ratio` on the problems that the agent has finished."""
    names = ("n_inputs", "ratio", "temperature", "seed")
    own = {tuple(row[name] for name in names) for row in problems_of(agent)}
    return ratio(agent, tau, lambda row: tuple(row[name] for name in names) in own)


def cells(agent: str, tau: int) -> dict[tuple[int, int], float]:
    """The agent's mean score in each (d, n/d) cell."""
    rows = problems_of(agent)
    return {
        (d, r): fmean(
            row[f"kl_tau_{tau}"] for row in rows if (row["n_inputs"], row["ratio"]) == (d, r)
        )
        for d in INPUTS
        for r in RATIOS
    }


def wins(agent: str, others: Sequence[str], tau: int) -> int:
    """The number of cells where the agent has a lower score than each of the others."""
    own, theirs = cells(agent, tau), [cells(other, tau) for other in others]
    return sum(all(own[cell] < other[cell] for other in theirs) for cell in own)


def best_cells(tau: int) -> int:
    """The number of cells where the true prior has the lowest score of all agents."""
    return wins("gpn-true-prior", [name for name in NAMES if name != "gpn-true-prior"], tau)


def tables() -> str:
    return "\n\n".join((summary_table(), *(split_table(tau) for tau in TAUS[::-1])))


def summary_table() -> str:
    """Ratios and seconds of each agent."""
    rows = []
    for agent, name in NAMES.items():
        report = harness.load(FOLDER / f"{agent}.json") or {}
        seconds = report["metrics"]["seconds_per_problem"]["mean"]
        place = "GPU" if "CPU," not in report["device"] else "one CPU core"
        shared = report["problems_in_one_program"]
        together = f"{place}, {shared} at a time" if shared > 1 else f"{place}, alone"
        scores = [f"{ratio(agent, tau):.3f}" for tau in TAUS[::-1]]
        rows.append([name, *scores, f"{seconds:.2f}", together])
    heads = ["agent", "τ = 10", "τ = 1", "s per problem", "fitted on"]
    return harness.markdown(heads, rows)


def split_table(tau: int) -> str:
    """Ratios by d, n/d and ρ."""
    splits: list[tuple[str, str, Any]] = [
        *((f"d = {d}", "n_inputs", d) for d in INPUTS),
        *((f"n/d = {r}", "ratio", r) for r in RATIOS),
        *((f"ρ = {t:g}", "temperature", t) for t in TEMPERATURES),
    ]
    rows = []
    for agent, name in NAMES.items():
        found = [
            ratio(agent, tau, lambda row, k=key, v=value: row[k] == v) for _, key, value in splits
        ]
        rows.append([name, *(f"{number:.2f}" for number in found)])
    return harness.markdown([f"τ = {tau}", *(head for head, _, _ in splits)], rows)


def figure(path: Path = FOLDER / "testbed.png") -> Path:
    """Scores at τ = 10 against labels per input, one panel for each d."""
    from matplotlib.figure import Figure

    from gpn.plots import PALETTE, method_color

    picture = Figure(figsize=(9.5, 3.8), layout="constrained")
    panels = picture.subplots(1, len(INPUTS), sharey=True)
    colors = {"gpn-true-prior": PALETTE["ours"], "gpn": PALETTE["paper"], "mlp": PALETTE["truth"]}
    for axes, d in zip(panels, INPUTS, strict=True):
        for agent, name in NAMES.items():
            found = cells(agent, 10)
            heights = [found[d, r] for r in RATIOS]
            thick = 2.6 if agent == "gpn-true-prior" else 1.4
            color = colors.get(agent) or method_color(agent)
            label = name.replace("`", "")
            style = "o--" if agent == "mlp" else "o-"
            axes.plot(RATIOS, heights, style, ms=4, lw=thick, color=color, label=label)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_title(f"d = {d}")
        axes.set_xlabel("labels per input, n/d")
    panels[0].set_ylabel("KL divergence, τ = 10 (log scale)")
    lines, labels = panels[0].get_legend_handles_labels()
    picture.legend(lines, labels, loc="outside lower center", ncols=7, fontsize=8, frameon=False)
    picture.savefig(path, dpi=150)
    return path
