"""Ten ensemble members as one tensor axis against ten separate fits, at the six-point sizes."""

from collections.abc import Iterator

from benchmarks.harness import Row, in_turn, ratio
from benchmarks.place import Place
from gpn import MLPTrunk, TrainConfig
from gpn.data import six_points
from gpn.methods.ensemble import Ensemble, EnsembleConfig

MEMBERS, STEPS, REPEATS = 10, 200, 5


def ensemble_axis(place: Place) -> Iterator[Row]:
    """Ten members as one tensor axis, against ten separate fits (2 × 128, six labels)."""
    steps = place.choose(STEPS, 3)
    config = EnsembleConfig(
        regularise="parameters",
        n_members=MEMBERS,
        trunk=MLPTrunk(widths=(128, 128), activation="relu"),
        train=TrainConfig(steps=steps, device=str(place.device)),
    )

    def one_axis() -> None:
        Ensemble(config).fit(six_points(), rng=0, progress=False)

    def separate() -> None:
        for seed in range(MEMBERS):
            Ensemble(config.replace(n_members=1)).fit(six_points(), rng=seed, progress=False)

    works = {"one axis": one_axis, "separate fits": separate}
    times = in_turn(works, place.choose(REPEATS, 1), 1, place.device)
    what = f"{MEMBERS} members, {steps} steps"
    yield from ratio(what, times, "one axis", "separate fits", " (at most 0.25 wanted)")
