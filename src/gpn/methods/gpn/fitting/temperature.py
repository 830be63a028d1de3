"""The temperature T of labels given functions, p(y | x, z) = softmax(g(x, z) / T)[y].

Smoothed labels teach a network to stop short of certainty, so that its probabilities are too
cautious on new rows. T maximises the likelihood of labels that training has not seen. The functions
stay: where rows are unlike the labeled ones they are the prior's, whatever T is.
"""

from dataclasses import replace

import torch
from scipy.optimize import minimize_scalar

from gpn.core.task import Task
from gpn.core.types import Draws, Labels
from gpn.methods.gpn.fitting.context import FitContext
from gpn.methods.gpn.fitting.problem import TrainingProblem

DRAWS = 100
MAX_LOG_TEMPERATURE = 1.5
MIN_PROBABILITY = 1e-12


def hold_out(context: FitContext) -> tuple[FitContext, Task | None]:
    """The context without the labels that are to choose T, and those; all of it where none are."""
    task, share = context.task, context.config.calibration_share
    count = round(share * len(task.x_obs)) if task.is_classification else 0
    if count == 0:
        return context, None
    order = torch.randperm(len(task.x_obs), generator=context.seeds)
    return replace(context, task=task.subset(order[count:])), task.subset(order[:count])


def calibrate(problem: TrainingProblem, held_out: Task) -> TrainingProblem:
    """The trained problem with the likeliest temperature in its report."""
    draws = problem.posterior_of_inputs().sample(held_out.x_obs, DRAWS, rng=0)
    temperature = likeliest_temperature(draws.cpu(), held_out.y_obs.cpu())
    if problem.context.group is not None:
        temperature = problem.context.group.broadcast(temperature)
    return replace(problem, report=replace(problem.report, temperature=temperature))


def likeliest_temperature(draws: Draws, y: Labels) -> float:
    """argmin_T −Σ_i log E_z softmax(g(x_i, z) / T)[y_i]."""
    logits = draws.double()

    def loss(log_temperature: float) -> float:
        p = (logits * torch.e**-log_temperature).softmax(-1).mean(0).gather(1, y[:, None])
        return -float(p.clamp_min(MIN_PROBABILITY).log().mean())

    limits = -MAX_LOG_TEMPERATURE, MAX_LOG_TEMPERATURE
    found = minimize_scalar(loss, bounds=limits, method="bounded", options={"xatol": 1e-3})
    return float(torch.e**found.x)
