"""Distance to the exact GP as the number of labels grows, and the time it takes."""

import time

import torch

import gpn
from experiments import harness
from experiments.fidelity.measure import distance_by_moments
from experiments.fidelity.problems import Problem, plane
from experiments.fidelity.truth import exact_posterior
from gpn import GPN, GPNConfig

LABEL_COUNTS = (100, 1_000, 10_000)
NOISE_STD = 0.1
MAX_JOINT_LABELS = 300
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


def variants(n_labels: int) -> dict[str, GPNConfig]:
    """All labels in one factor, in feature space, and independent rows."""
    configs = {
        "joint": GPNConfig(anchor="joint", noise_std=NOISE_STD),
        "conditioned": GPNConfig(anchor="conditioned", noise_std=NOISE_STD),
        "mixture": GPNConfig(anchor="independent", beta=0.1, noise_std=NOISE_STD),
    }
    if n_labels > MAX_JOINT_LABELS:
        del configs["joint"]
    return configs


def run_reach(threads: int) -> None:
    """Measure, print each row, and write `results/fidelity/reach/<variant>.json`."""
    torch.set_num_threads(threads)
    metrics: dict[str, dict[str, float]] = {name: {} for name in NAMES}
    for n_labels in LABEL_COUNTS:
        problem = surface(n_labels)
        started = time.perf_counter()
        truth = exact_posterior(problem)
        truth.variance(problem.grid)
        exact_seconds = time.perf_counter() - started
        for name, config in variants(n_labels).items():
            posterior, seconds = harness.timed_fit(GPN(config), problem.task, 0)
            measured = distance_by_moments(posterior, problem, truth)
            row = {"seconds": seconds, "exact_gp_seconds": exact_seconds}
            row |= {key: measured[key] for key in KEYS}
            print(name, n_labels, {key: round(value, 4) for key, value in row.items()}, flush=True)
            metrics[name] |= {f"{key}_{n_labels}": value for key, value in row.items()}
            fits = [v for key, v in metrics[name].items() if key.startswith("seconds_")]
            mean_seconds = {"fit": sum(fits) / len(fits)}
            harness.write_result("fidelity/reach", name, config, [0], [metrics[name]], mean_seconds)


def table() -> str:
    """Markdown, from the result files: W2 (covariance error), seconds."""
    folder = harness.RESULTS / "fidelity" / "reach"
    measured = {name: (harness.load(folder / f"{name}.json") or {})["metrics"] for name in NAMES}
    rows = []
    for count in LABEL_COUNTS:
        if f"w2_{count}" in measured["conditioned"]:
            exact = measured["conditioned"][f"exact_gp_seconds_{count}"]["mean"]
            cells = [_cell(measured[name], count) for name in NAMES]
            rows.append([f"{count:,}", *cells, f"{exact:.1f} s"])
    return harness.markdown(["labels", *NAMES.values(), "exact GP"], rows)


def _cell(metrics: dict[str, dict[str, float]], count: int) -> str:
    if f"w2_{count}" not in metrics:
        return "not run"
    value = {key: metrics[f"{key}_{count}"]["mean"] for key in (*KEYS, "seconds")}
    return f"{value['w2']:.4f} ({value['covariance_error']:.0%}), {value['seconds']:.0f} s"
