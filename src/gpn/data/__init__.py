"""Tasks and readers."""

from gpn.data.toy import SIX_POINTS_NOISE_STD, six_points

__all__ = ["SIX_POINTS_NOISE_STD", "six_points"]
