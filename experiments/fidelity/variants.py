"""Every variant of a GPN that the benchmark compares, as its difference from the default."""

from typing import Any

from experiments.fidelity.problems import Problem
from gpn import GPNConfig, MLPTrunk, TrainConfig

SMALL = MLPTrunk(widths=(128, 128), activation="relu")
PAPER_TRAIN = TrainConfig(steps=1500, pool_batch=32)
STORED_TRAIN = TrainConfig(steps=800, pool_batch=32, learning_rate=3e-3)
INDEPENDENT_TRAIN = TrainConfig(steps=1500, pool_batch=64, learning_rate=3e-3)


def _default(**changes: Any) -> GPNConfig:
    return GPNConfig(**changes)


def _paper(**changes: Any) -> GPNConfig:
    return GPNConfig.paper(trunk=SMALL, train=PAPER_TRAIN, **changes)


def variants(problem: Problem) -> dict[str, GPNConfig]:
    """By name: ours first, then one correction left out or put in at a time, then the paper."""
    noise = {"noise_std": problem.noise_std}
    alone = {**noise, "anchor": "independent", "beta": 0.1, "train": INDEPENDENT_TRAIN}
    learnt = {**noise, "codes": "learnt", "train": STORED_TRAIN}
    every = {
        "gpn": _default(**noise),
        "gpn-conditioned": _default(**noise, anchor="conditioned"),
        "gpn-no-target-noise": _default(**noise, target_noise=False),
        "gpn-independent": _default(**alone, pool_weights="equal"),
        "gpn-mixture": _default(**alone, pool_weights="mixture"),
        "gpn-concat": _default(**noise, generator="concat", n_anchors=32, train=STORED_TRAIN),
        "gpn-learnt": _default(**learnt, anchor="joint", target_noise=True),
        "gpn-paper": _paper(),
    }
    if problem.noise_std is None:
        del every["gpn-conditioned"]
    return every
