"""Intervals of new labels: their scatter, their distribution, and conformal calibration."""
