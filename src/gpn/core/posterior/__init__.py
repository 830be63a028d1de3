"""What a fit returns: functions, moments, intervals and class probabilities."""

from gpn.core.posterior.base import Function, Posterior

__all__ = ["Function", "Posterior"]
