"""The networks that are timed, and all that benchmarks use of the training loop's internals."""

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.context import BenchmarkContext
from gpn import GPNConfig, Task, TrainConfig
from gpn.core.networks.encodings import fit_features
from gpn.core.networks.trunks import Trunk
from gpn.core.types import as_generator
from gpn.methods.ensemble.ensemble import EnsembleConfig, ensemble_step
from gpn.methods.gpn.defaults import resolve
from gpn.methods.gpn.fitting.build import build
from gpn.methods.gpn.fitting.context import FitContext
from gpn.methods.gpn.fitting.problem import TrainingProblem
from gpn.methods.gpn.model.generator import AffineGenerator
from gpn.training.batches import LabelBatches
from gpn.training.cuda_graphs import TrainStep
from gpn.training.loop import backward_pass, optimiser_of, train
from gpn.training.torch_state import seeded_global_rng

ENDLESS = 1_000_000
Work = Callable[[], Any]


def default_train(context: BenchmarkContext) -> TrainConfig:
    """The training of a default GPN on superconductor."""
    if context.quick:
        return context.plan("superconductor").train
    resolved = resolve(GPNConfig(), context.split("superconductor").task)
    return resolved.train.replace(device=str(context.device))


def plain_network(
    context: BenchmarkContext, task: str, trunk: Trunk | None = None, seed: int = 0
) -> AffineGenerator:
    """The trunk with an ordinary head: one number per class or target, and no code."""
    signature = context.split(task).task.signature
    shape = signature.input_shape, signature.n_outputs
    trunk = trunk or context.plan(task).trunk
    network = AffineGenerator(trunk, *shape, code_dim=0, rng=as_generator(seed))
    return network.to(context.device, torch.float32)


def fitted_network(context: BenchmarkContext, seed: int) -> nn.Sequential:
    """The experiments' trunk with an ordinary head, fitted to superconductor by squared error."""
    task = context.split("superconductor").task
    network = plain_network(context, "superconductor", seed=seed)
    fit_features(network.features, lambda: task.x_obs)
    plain = nn.Sequential(network.features, *network.tail)
    fit_labels(plain, lambda x, y: functional.mse_loss(plain(x), y), context, task, seed=seed)
    return plain.eval()


def fit_labels(
    module: nn.Module,
    loss: Callable[[Tensor, Tensor], Tensor],
    context: BenchmarkContext,
    task: Task,
    *,
    batch: int = 256,
    learning_rate: float = 1e-3,
    seed: int = 0,
) -> None:
    """Minimise `loss(x, y)` over batches of labels for 1,500 steps."""
    steps = context.size(1500, 3)
    config = TrainConfig(steps=steps, learning_rate=learning_rate, device=str(context.device))
    labels = LabelBatches(len(task.x_obs), batch, as_generator(seed, context.device))

    def terms() -> dict[str, Tensor]:
        rows = labels.next()
        return {"data": loss(task.x_obs[rows], task.y_obs[rows])}

    with seeded_global_rng(as_generator(seed)):
        train(module, terms, config)


def steps_of(module: nn.Module, step: TrainStep, config: TrainConfig, steps: int) -> Work:
    """`steps` steps per call of `gpn.training.loop`, without its checks and without an end."""
    optimiser, schedule = optimiser_of(module, config.replace(steps=ENDLESS))
    backward = backward_pass(step, optimiser, config)

    def run() -> None:
        for _ in range(steps):
            backward(step.rows())
            optimiser.step()
            schedule.step()

    return run


def plain_steps(
    context: BenchmarkContext, config: TrainConfig, steps: int, batch: int | None = None
) -> Work:
    """Steps of our GPN's trunk on CIFAR-10: cross-entropy on labels alone, with augmentation."""
    task, rng = context.split("cifar10").task, as_generator(0, context.device)
    network = plain_network(context, "cifar10", context.plan("cifar10").gpn_trunk)
    labels = LabelBatches(len(task.x_obs), batch or config.label_batch, rng)

    def rows() -> tuple[Tensor, Tensor]:
        picked = labels.next()
        return task.augmented(task.x_obs[picked], rng), task.y_obs[picked]

    def terms(x: Tensor, y: Tensor) -> dict[str, Tensor]:
        return {"data": functional.cross_entropy(network.columns(x)[0], y)}

    return steps_of(network, TrainStep(rows, terms), config, steps)


def gpn_steps(context: BenchmarkContext, config: TrainConfig, steps: int) -> Work:
    """Steps of our GPN on CIFAR-10, on a copy: several may be timed in turn."""
    problem = gpn_problem(context)
    problem = replace(problem, objective=copy.deepcopy(problem.objective))
    step = problem.step(as_generator(0, context.device))
    return steps_of(problem.objective, step, config, steps)


@lru_cache(maxsize=1)
def gpn_problem(context: BenchmarkContext) -> TrainingProblem:
    """What our GPN trains on CIFAR-10, before its first step."""
    plan, task = context.plan("cifar10"), context.split("cifar10").task
    networks = {"trunk": plan.gpn_trunk, "train": plan.train}
    config = GPNConfig(beta=context.beta("cifar10"), pool_weights="equal", **networks)
    return build(FitContext(resolve(config, task), task, as_generator(0)))


def ensemble_steps(
    context: BenchmarkContext, trunk: Trunk, members: int, config: TrainConfig, steps: int
) -> Work:
    """Steps of output-anchored members on CIFAR-10, as one tensor axis."""
    ensemble = EnsembleConfig(regularise="outputs", n_members=members, trunk=trunk, train=config)
    networks, step, _ = ensemble_step(ensemble, context.split("cifar10").task, as_generator(0))
    return steps_of(networks, step, config, steps)
