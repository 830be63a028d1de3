"""Tasks, and readers of official data files."""

from gpn.data.augment import FlipAndShift
from gpn.data.image_part import ImagePart
from gpn.data.image_set import ImageSet, images
from gpn.data.store import DataError, MissingData, Source, data_folder
from gpn.data.tables import Table, superconductivity
from gpn.data.toy import SIX_POINTS_NOISE_STD, six_points

__all__ = [
    "SIX_POINTS_NOISE_STD",
    "DataError",
    "FlipAndShift",
    "ImagePart",
    "ImageSet",
    "MissingData",
    "Source",
    "Table",
    "data_folder",
    "images",
    "six_points",
    "superconductivity",
]
