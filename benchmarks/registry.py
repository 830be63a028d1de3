"""Every benchmark by name: a function of the place that gives its rows one after the other."""

from collections.abc import Callable, Iterator

from benchmarks.axis import ensemble_axis, side_by_side
from benchmarks.big_pool import big_pool
from benchmarks.fits import six_seconds, superconductor_cpu
from benchmarks.harness import Row
from benchmarks.peers import peers
from benchmarks.place import Place
from benchmarks.sampling import draws, moments
from benchmarks.soak import soak
from benchmarks.training import gpn_against_ensemble, gpn_against_labels, profile

BENCHMARKS: dict[str, Callable[[Place], Iterator[Row]]] = {
    "draws": draws,
    "moments": moments,
    "training": gpn_against_labels,
    "ensemble": gpn_against_ensemble,
    "ensemble_axis": ensemble_axis,
    "side_by_side": side_by_side,
    "six_seconds": six_seconds,
    "peers": peers,
    "profile": profile,
    "superconductor_cpu": superconductor_cpu,
    "big_pool": big_pool,
    "soak": soak,
}
