"""Run the suite: every problem, every variant, five seeds; finished results are not repeated."""

import functools
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

import torch
from torch import Tensor

from experiments import harness
from experiments.fidelity.measure import distance_to_classes, distance_to_gp
from experiments.fidelity.problems import PROBLEMS
from experiments.fidelity.report import NAMES
from experiments.fidelity.truth import class_logits, exact_posterior
from experiments.fidelity.variants import variants
from gpn import GPN

SEEDS = [0, 1, 2, 3, 4]


def run_all(problems: list[str], workers: int, threads: int) -> None:
    """Each (problem, variant) is one job with `threads` torch threads."""
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
        distance, key = functools.partial(distance_to_classes, truth=truth), "total_variation"
    else:
        exact = exact_posterior(problem)
        distance, key = functools.partial(distance_to_gp, truth=exact), "w2"
    rows, seconds = [], 0.0
    for seed in SEEDS:
        posterior, taken = harness.timed_fit(GPN(config), problem.task, seed)
        rows.append(distance(posterior, problem))
        seconds += taken / len(SEEDS)
    task = f"fidelity/{problem_name}"
    harness.write_result(task, variant, config, SEEDS, rows, {"fit": seconds}, extra)
    return f"{key} {sum(row[key] for row in rows) / len(rows):.4f}  fit {seconds:.1f} s"


@functools.cache
def class_truth(problem_name: str) -> tuple[Tensor, dict[str, float]]:
    """The exact mean class probabilities on the grid, and the convergence of the chains."""
    logits, convergence = class_logits(PROBLEMS[problem_name]())
    return logits.softmax(-1).mean(0), convergence


def _path(problem: str, variant: str) -> Path:
    return harness.RESULTS / "fidelity" / problem / f"{variant}.json"
