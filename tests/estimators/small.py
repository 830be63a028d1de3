"""Rows and a configuration that is fitted in no time, to no good."""

from gpn import GPNConfig, MLPTrunk, TrainConfig

SMALL = GPNConfig(
    beta=0.03,
    anchor="independent",
    noise_std=0.1,
    pool_weights="equal",
    n_axes=8,
    reference_rows=64,
    trunk=MLPTrunk(widths=(8,)),
    train=TrainConfig(steps=2, label_batch=16, pool_batch=16),
)
