"""How far joint anchors reach: distance to the exact GP as labels grow, with the time it takes."""

import time

import torch

import gpn
from experiments import results
from experiments.fidelity.measure import by_moments
from experiments.fidelity.problems import Problem, plane
from experiments.fidelity.truth import exact_posterior
from experiments.timing import timed_fit
from gpn import GPN, GPNConfig

COUNTS = (100, 1_000, 10_000)
NOISE_STD = 0.1
JOINT_UP_TO = 300
NAMES = {
    "joint": "joint",
    "conditioned": "conditioned",
    "mixture": "independent, mixture weights",
}
KEYS = ("w2", "joint_w2", "covariance_error", "band_coverage")


def surface(n_labels: int) -> Problem:
    """Labels over the middle of the plane, the pool over all of it."""
    rng = torch.Generator().manual_seed(n_labels)
    x = 3 * torch.rand(n_labels, 2, generator=rng) - 1.5
    y = torch.sin(2 * x[:, :1]) * torch.cos(x[:, 1:])
    y = y + NOISE_STD * torch.randn(n_labels, 1, generator=rng)
    return Problem(gpn.Task(x, y, pool=gpn.box([-2.0] * 2, [2.0] * 2)), plane(21), NOISE_STD)


def approaches(n_labels: int) -> dict[str, GPNConfig]:
    """The approximations: all labels in one factor, feature space, and independent rows."""
    every = {
        "joint": GPNConfig(anchor="joint", noise_std=NOISE_STD),
        "conditioned": GPNConfig(anchor="conditioned", noise_std=NOISE_STD),
        "mixture": GPNConfig(anchor="independent", beta=0.1, noise_std=NOISE_STD),
    }
    return every if n_labels <= JOINT_UP_TO else {k: v for k, v in every.items() if k != "joint"}


def run_reach(threads: int) -> None:
    """Measure, print a row each, and write `results/fidelity/reach/<approach>.json`."""
    torch.set_num_threads(threads)
    rows: dict[str, list[dict[str, float]]] = {}
    for n_labels in COUNTS:
        problem = surface(n_labels)
        started = time.perf_counter()
        truth = exact_posterior(problem)
        truth.variance(problem.grid)
        exact_seconds = time.perf_counter() - started
        for name, config in approaches(n_labels).items():
            posterior, seconds = timed_fit(GPN(config), problem.task, 0)
            measured = by_moments(posterior, problem, truth)
            row = {"labels": n_labels, "seconds": seconds, "exact_gp_seconds": exact_seconds}
            row.update({key: measured[key] for key in KEYS})
            rows.setdefault(name, []).append(row)
            print(name, {key: round(value, 4) for key, value in row.items()}, flush=True)
            _write(name, config, rows[name])


def _write(name: str, config: GPNConfig, rows: list[dict[str, float]]) -> None:
    by_count = [
        {f"{key}_{int(row['labels'])}": value for key, value in row.items() if key != "labels"}
        for row in rows
    ]
    merged = {key: value for part in by_count for key, value in part.items()}
    seconds = {"fit": sum(row["seconds"] for row in rows) / len(rows)}
    results.write("fidelity/reach", name, config, [0], [merged], seconds)


def table() -> str:
    """Markdown, from the result files: W2 (covariance error), seconds."""
    heads = ["labels", *NAMES.values(), "exact GP"]
    lines = [" | ".join(heads), " | ".join("---" for _ in heads)]
    measured = _metrics("conditioned")
    for count in COUNTS:
        if f"w2_{count}" not in measured:
            continue
        cells = [_cell(name, count) for name in NAMES]
        exact = measured[f"exact_gp_seconds_{count}"]["mean"]
        lines.append(" | ".join([f"{count:,}", *cells, f"{exact:.1f} s"]))
    return "\n".join(f"| {line} |" for line in lines)


def _metrics(name: str) -> dict[str, dict[str, float]]:
    return results.read("fidelity/reach", name)["metrics"]


def _cell(name: str, count: int) -> str:
    metrics = _metrics(name)
    if f"w2_{count}" not in metrics:
        return "not run"
    value = {key: metrics[f"{key}_{count}"]["mean"] for key in (*KEYS, "seconds")}
    return f"{value['w2']:.4f} ({value['covariance_error']:.0%}), {value['seconds']:.0f} s"
