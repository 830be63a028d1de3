"""Many small networks as one tensor axis against as many separate fits."""

from collections.abc import Callable, Iterator

from benchmarks.harness import Row, in_turn, ratio
from benchmarks.place import Place
from gpn import GPN, GPNConfig, MLPTrunk, TrainConfig
from gpn.data import six_points
from gpn.methods.ensemble import Ensemble, EnsembleConfig
from gpn.methods.gpn.fitting.fit_many import fit_many

MEMBERS, STEPS, REPEATS = 10, 200, 5
Work = Callable[[], None]


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

    what = f"{MEMBERS} members, {steps} steps"
    yield from _against_separate(place, what, one_axis, separate, " (at most 0.25 wanted)")


def side_by_side(place: Place) -> Iterator[Row]:
    """Ten β and seeds of a GPN on superconductor as one tensor axis, against ten separate fits."""
    plan, task = place.plan("superconductor"), place.split("superconductor").task
    steps, seeds = place.choose(STEPS, 3), range(MEMBERS)
    train = plan.train.replace(steps=steps, device=str(place.device))
    how = {"trunk": plan.trunk.replace(**plan.extras), "train": train, "pool_weights": "equal"}
    configs = [GPNConfig(beta=0.1 * (1 + seed), **how) for seed in seeds]

    def one_axis() -> None:
        fit_many(configs, [task] * MEMBERS, seeds, progress=False)

    def separate() -> None:
        for config, seed in zip(configs, seeds, strict=True):
            GPN(config).fit(task, rng=seed, progress=False)

    yield from _against_separate(place, f"{MEMBERS} fits, {steps} steps", one_axis, separate)


def _against_separate(
    place: Place, what: str, one_axis: Work, separate: Work, wanted: str = ""
) -> list[Row]:
    works = {"one axis": one_axis, "separate fits": separate}
    times = in_turn(works, place.choose(REPEATS, 1), 1, place.device)
    return ratio(what, times, "one axis", "separate fits", wanted)
