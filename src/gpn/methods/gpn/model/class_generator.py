"""The generator of classes in closed form: Laplace's Gaussian about the most probable logits.

At temperature T the likelihood is raised to 1/T: a label counts 1/T times. With K = K_prior / T and
A, w of its mode (`core/priors/laplace.py`), the generator has the prior's kernel, and

    weights A/T,   RᵀR = (K_prior + diag(T/w))⁻¹

A colder posterior has the same mean as one under the prior K, and T times its variance.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from gpn.core.priors.ard import ARDPrior
from gpn.core.priors.cholesky import cholesky, jittered_cholesky
from gpn.core.priors.laplace import (
    FeatureCovariance,
    FullCovariance,
    find_mode,
    laplace_root,
    leave_one_out_logits,
)
from gpn.core.types import Inputs, Labels, Outputs
from gpn.methods.gpn.model.kernel_generator import LANDMARK_JITTER, KernelGenerator


@dataclass(frozen=True)
class ConditionedClasses:
    """A generator, and the logits' moments at each label given all others."""

    generator: KernelGenerator
    left_out_mean: Outputs
    left_out_variance: Float[Tensor, "n"]


def condition_on_classes(
    prior: ARDPrior, x: Inputs, y: Labels, n_classes: int, temperature: float
) -> ConditionedClasses:
    """Labels are the landmarks."""
    gram = prior.kernel(x, x)
    inner = FullCovariance(gram / temperature)
    mode = find_mode(inner, y, prior.mean(x, n_classes))
    left_out, variance = leave_one_out_logits(mode, inner.label_variance(mode.precision))
    precision = mode.precision / temperature
    root = laplace_root(gram, precision)
    weights = mode.weights / temperature
    generator = KernelGenerator(prior, x, weights, root, is_exact=True, precision=precision)
    return ConditionedClasses(generator, left_out, temperature * variance)


def condition_on_classes_by_landmarks(
    prior: ARDPrior,
    x: Inputs,
    y: Labels,
    n_classes: int,
    temperature: float,
    landmarks: Float[Tensor, "m *d"],
) -> ConditionedClasses:
    """Labels enter through features φ = L⁻¹ K_Ux of landmarks U, L Lᵀ = K_UU.

    With S = I + Σ_i w_i φφᵀ/T:   R = Tᵀ L⁻¹,   T Tᵀ = I − S⁻¹.
    """
    gram = prior.kernel(landmarks, landmarks)
    gram.diagonal().add_(LANDMARK_JITTER * float(gram.diagonal().mean()))
    factor = cholesky(gram, "the covariance of the landmarks")
    cross = prior.kernel(landmarks, x)
    features = torch.linalg.solve_triangular(factor, cross, upper=False)
    inner = FeatureCovariance(features / temperature**0.5)
    mode = find_mode(inner, y, prior.mean(x, n_classes))
    left_out, variance = leave_one_out_logits(mode, inner.label_variance(mode.precision))
    missed = (prior.variance(x) - features.square().sum(0)).clamp_min(0.0)
    precision = inner.factor(mode.precision)
    identity = torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
    inverse = torch.linalg.solve_triangular(precision, identity, upper=False)
    root, _ = jittered_cholesky(identity - inverse.T @ inverse, "what the labels tell")
    half = torch.linalg.solve_triangular(factor, root.T, upper=False, left=False)
    products = features @ (mode.weights / temperature)
    weights = torch.linalg.solve_triangular(factor.T, products, upper=True)
    generator = KernelGenerator(prior, landmarks, weights, half, is_exact=False)
    return ConditionedClasses(generator, left_out, temperature * variance + missed)


def tempered(prior: ARDPrior, factor: float) -> ARDPrior:
    """The prior with `factor` times its covariance."""
    return replace(prior, height=prior.height * factor, linear=prior.linear * factor)
