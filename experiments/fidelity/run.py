"""Run the benchmark: every problem, every variant, five seeds; finished results are kept."""

import functools
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

import torch
from torch import Tensor

from experiments import results
from experiments.fidelity.measure import class_row, regression_row
from experiments.fidelity.problems import PROBLEMS
from experiments.fidelity.report import NAMES
from experiments.fidelity.truth import class_logits
from experiments.fidelity.variants import variants

SEEDS = [0, 1, 2, 3, 4]


def run_all(problems: list[str], workers: int, threads: int) -> None:
    """Each (problem, variant) is one job; `threads` torch threads per job."""
    jobs = [
        (problem, variant)
        for variant in NAMES
        for problem in problems
        if variant in variants(PROBLEMS[problem]()) and not _path(problem, variant).exists()
    ]
    start = {"initializer": torch.set_num_threads, "initargs": (threads,)}
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), **start) as pool:
        futures = {pool.submit(run_one, *job): job for job in jobs}
        for count, future in enumerate(as_completed(futures), 1):
            print(f"{count}/{len(jobs)}", *futures[future], future.result(), flush=True)


def run_one(problem_name: str, variant: str) -> str:
    """One variant on one problem over all seeds; writes its result file."""
    problem = PROBLEMS[problem_name]()
    config, extra = variants(problem)[variant], {}
    if problem.noise_std is None:
        truth, extra["truth"] = class_truth(problem_name)
        rows = [class_row(config, problem, seed, truth) for seed in SEEDS]
    else:
        rows = [regression_row(config, problem, seed) for seed in SEEDS]
    fit = sum(row.pop("seconds") for row in rows) / len(rows)
    task = f"fidelity/{problem_name}"
    results.write(task, variant, config, SEEDS, rows, {"fit": fit}, extra)
    key = "total_variation" if problem.noise_std is None else "w2"
    return f"{key} {sum(row[key] for row in rows) / len(rows):.4f}  fit {fit:.1f} s"


@functools.cache
def class_truth(problem_name: str) -> tuple[Tensor, dict[str, float]]:
    """The true mean class probabilities on the grid, and how well the chains mixed."""
    logits, mixing = class_logits(PROBLEMS[problem_name]())
    return logits.softmax(-1).mean(0), mixing


def _path(problem: str, variant: str) -> Path:
    return results.RESULTS / "fidelity" / problem / f"{variant}.json"
