"""Every variant of a GPN that the suite compares, as its difference from the default."""

from experiments.fidelity.problems import Problem
from gpn import GPNConfig, MLPTrunk, TrainConfig

SMALL = MLPTrunk(widths=(128, 128), activation="relu")
PAPER_TRAIN = TrainConfig(steps=1500, pool_batch=32)
STORED_TRAIN = TrainConfig(steps=800, pool_batch=32, learning_rate=3e-3)
INDEPENDENT_TRAIN = TrainConfig(steps=1500, pool_batch=64, learning_rate=3e-3)


def variants(problem: Problem) -> dict[str, GPNConfig]:
    """The default, then one correction removed or added at a time, then the paper."""
    default = GPNConfig(noise_std=problem.noise_std)
    independent = default.replace(anchor="independent", beta=0.1, train=INDEPENDENT_TRAIN)
    stored = default.replace(train=STORED_TRAIN)
    configs = {
        "gpn": default,
        "gpn-conditioned": default.replace(anchor="conditioned"),
        "gpn-no-target-noise": default.replace(target_noise=False),
        "gpn-independent": independent.replace(pool_weights="equal"),
        "gpn-mixture": independent.replace(pool_weights="mixture"),
        "gpn-concat": stored.replace(generator="concat", n_anchors=32),
        "gpn-learnt": stored.replace(codes="learnt", anchor="joint", target_noise=True),
        "gpn-paper": GPNConfig.paper(trunk=SMALL, train=PAPER_TRAIN),
    }
    if problem.noise_std is None:
        del configs["gpn-conditioned"]
    return configs
