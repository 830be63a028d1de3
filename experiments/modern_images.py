"""CIFAR-10 with a residual network: `python -m experiments.modern_images [METHOD ...]`.

    python -m experiments.modern_images --data FOLDER --seconds 520     # all methods, by importance

Labels are all training images (of wild pools half of them), tests are the official test images,
SVHN's last 5,000 images and textures. A method is one of

    gpn                a pool half of CIFAR-10, half of SVHN's first 5,000 images
    gpn-synthetic      no OOD images at all: a pool of the labels, and synthetic outliers
    gpn-wild-SHARE     25,000 labels, a pool of the other images of which SHARE are OOD images
    plain, outlier-exposure
                       the same trunk, recipe and steps: labels alone, and with uniform classes on
                       the OOD rows of the pool of `gpn`
    dropout            `plain` with dropout of the head, in training and in each of 100 draws
    plain-wild         `plain` with the 25,000 labels of wild pools
    ensemble           the mean probabilities of up to five runs of `plain`, of which it asks for
                       those that are missing; as many as there is time for

Each run is kept as it ends (`runs/`), and its method's file is written, so that a command that was
stopped resumes; with `--seconds` none begins that would not end in time. Runs of other settings are
not told apart: delete `runs/` first. `--valid` scores 5,000 training images in place of test
images, for the choice of settings; other ones for each seed, so that it has no ensemble.
`python -m experiments figure cifar10-modern` draws what was measured.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from experiments import harness
from experiments.paper.evaluate import detection, evaluate
from experiments.paper.tasks.images import cifar10
from experiments.paper.tasks.split import Split
from gpn import GPN, GPNConfig, ResNetTrunk, data, metrics
from gpn.core.losses import cross_entropy
from gpn.core.networks.encodings import fit_features
from gpn.core.pools.base import TensorPool
from gpn.core.types import as_generator, channels_last
from gpn.methods.gpn.defaults import resolve
from gpn.methods.gpn.fitting.temperature import likeliest_temperature
from gpn.methods.gpn.model.generator import AffineGenerator
from gpn.methods.gpn.posterior import GPNPosterior
from gpn.training.batches import LabelBatches
from gpn.training.cuda_graphs import TrainStep
from gpn.training.loop import train
from gpn.training.state import Terms
from gpn.training.torch_state import seeded_global_rng

TASK = "cifar10-modern"
AUGMENT = data.FlipAndShift(cutout=12, padding="reflect")
WILD_LABELS = 25_000
CHUNK_ROWS = 1000
START_UP_STEPS = 10
CONFIG = GPNConfig(trunk=ResNetTrunk())
DROPOUT = 0.2
EXPOSURE = 0.5  # the weight of uniform classes in Outlier Exposure (Hendrycks et al. 2019)
PLAN = {  # the number of seeds of each method; the most important methods first
    "gpn": 3,
    "plain": 3,
    "gpn-synthetic": 3,
    "gpn-wild-0.1": 1,
    "gpn-wild-0.01": 1,
    "plain-wild": 1,
    "outlier-exposure": 1,
    "gpn-wild-0.5": 1,
    "gpn-wild-0.05": 1,
    "dropout": 1,
    "ensemble": 1,
}
MEMBERS = 5
N_DRAWS, TIMED_IMAGES, REPEATS = 100, 1000, 10

Scores = dict[str, Tensor]
Logits = dict[str, Tensor]  # by the suffix of their metrics: "id", "" or "_unseen_…"
Run = tuple[str, int]  # a method and a seed


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, prog="experiments.modern_images")
    parser.add_argument("methods", nargs="*", default=list(PLAN))
    parser.add_argument("--seeds", type=int, help="of each method, in place of three or one")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="for all runs")
    parser.add_argument("--valid", action="store_true")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--steps", type=int, help="for a trial of a few steps")
    options = parser.parse_args(arguments)
    start_up(options)
    for method, runs in in_time(planned(options), options):
        if not options.valid and options.steps is None:
            _write(method, runs)
    if "ensemble" in options.methods and not options.valid:
        write_ensemble(options)


def start_up(options: argparse.Namespace) -> None:
    """A fit of a few steps, before any is timed: a process's first one loads torch's modules and
    kernels, and chooses convolutions. Its seconds are printed."""
    if not torch.cuda.is_available():
        return
    few = argparse.Namespace(**{**vars(options), "steps": START_UP_STEPS})
    for method in ("gpn", "plain"):
        split = split_of(method, 0, options)
        config, start = shortened(CONFIG, split, few), time.perf_counter()
        if method == "gpn":
            GPN(config).fit(split.task, rng=0, progress=False)
        else:
            fit_plain(split, config, 0, exposed=False)
        print(f"start-up of {method}: {seconds_since(start):.1f} s", flush=True)


def planned(options: argparse.Namespace) -> list[Run]:
    """Every run by importance; at the end the members that an ensemble lacks."""
    trained = [method for method in options.methods if method != "ensemble"]
    runs = [(m, seed) for m in trained for seed in range(options.seeds or PLAN.get(m, 1))]
    if "ensemble" in options.methods and not options.valid:
        members = [("plain", seed) for seed in range(options.seeds or MEMBERS)]
        runs += [member for member in members if member not in runs]
    return runs


def in_time(
    planned: list[Run], options: argparse.Namespace
) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A method and all its runs so far, after each run that ends within `--seconds`."""
    started, longest = time.perf_counter(), 0.0
    runs: dict[str, list[dict[str, Any]]] = {}
    for method, seed in planned:
        begun = time.perf_counter()
        if begun - started + longest > options.seconds:
            print(f"no time for {method}, seed {seed}, and what follows", flush=True)
            return
        runs.setdefault(method, []).append(one_run(method, seed, options))
        longest = max(longest, time.perf_counter() - begun)
        yield method, runs[method]


def one_run(method: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """One fit and its metrics, or those of an earlier run."""
    path = run_path(method, seed, options)
    found = harness.load(path)
    if found is None:
        found = measure(method, seed, options, CONFIG)
        harness.save(path, found)
    _show(method, seed, found)
    return found


def run_path(method: str, seed: int, options: argparse.Namespace) -> Path:
    trial = ("-valid" if options.valid else "") + (f"-{options.steps}" if options.steps else "")
    return harness.RESULTS / TASK / "runs" / f"{method}-{seed}{trial}.json"


def _show(method: str, seed: int, found: dict[str, Any]) -> None:
    shown = ("accuracy", "fit_seconds", "sampling", "nll", "ece", "ood_auc", "ood_fpr95")
    wanted = {k: round(v, 5) for k, v in found["metrics"].items() if k.startswith(shown)}
    print(method, seed, json.dumps(wanted), flush=True)


def measure(
    method: str, seed: int, options: argparse.Namespace, config: GPNConfig
) -> dict[str, Any]:
    split = split_of(method, seed, options)
    config = shortened(config, split, options)
    start = time.perf_counter()
    if method.startswith("gpn"):
        posterior = GPN(config).fit(split.task, rng=seed, progress=False)
        seconds = seconds_since(start)
        measured = evaluate(posterior, split.test, split.unseen, N_DRAWS)
        measured |= sampling_cost(posterior, split.test.x_id[:TIMED_IMAGES])
        config = posterior.config
    else:
        config = _with_dropout(config) if method == "dropout" else config
        network = fit_plain(split, config, seed, exposed=method == "outlier-exposure")
        seconds = seconds_since(start)
        config = resolve(config, split.task).public()
        is_dropout = method == "dropout"
        logits = logits_of(network, split, n_draws=N_DRAWS if is_dropout else 0)
        metrics_of = ensemble_metrics if is_dropout else plain_metrics
        measured = metrics_of(logits, split.test.y_id)
        if method == "plain":
            _keep(logits, split.test.y_id, run_path(method, seed, options).with_suffix(".pt"))
    metrics_ = {**measured, "fit_seconds": seconds}
    return {"config": harness.plain(config), "metrics": metrics_}


def shortened(config: GPNConfig, split: Split, options: argparse.Namespace) -> GPNConfig:
    """With as many steps as a trial asks for, if it does."""
    if options.steps is None:
        return config
    return config.replace(train=resolve(config, split.task).train.replace(steps=options.steps))


def _with_dropout(config: GPNConfig) -> GPNConfig:
    assert config.trunk is not None
    return config.replace(trunk=config.trunk.replace(dropout=DROPOUT))


def seconds_since(start: float) -> float:
    """The device's queue included."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start


def sampling_cost(posterior: GPNPosterior, images: Tensor) -> dict[str, float]:
    """Milliseconds of `N_DRAWS` draws at the images and of one pass of their trunk, and the ratio.

    Medians of `REPEATS` in turn, after two to warm up; both see the images in the same views.
    """
    rows = channels_last(images.to(posterior.device, posterior.dtype))
    trunk = posterior.generator.features

    def draw() -> None:
        posterior.sample(rows, N_DRAWS, rng=0)

    @torch.no_grad()
    def forward() -> None:
        trunk(rows)

    pairs = [(_milliseconds(draw, rows), _milliseconds(forward, rows)) for _ in range(REPEATS + 2)]
    draws, passes = (statistics.median(column) for column in zip(*pairs[2:], strict=True))
    return {"sampling_ms": draws, "trunk_ms": passes, "sampling_ratio": draws / passes}


def _milliseconds(work: Callable[[], None], rows: Tensor) -> float:
    """How long `work` takes on the device of `rows`."""
    if rows.device.type != "cuda":
        start = time.perf_counter()
        work()
        return 1000 * (time.perf_counter() - start)
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    first.record()
    work()
    last.record()
    torch.cuda.synchronize()
    return first.elapsed_time(last)


def split_of(method: str, seed: int, options: argparse.Namespace) -> Split:
    """Labels, pool and test rows of a method."""
    split = cifar10(seed, options.data)
    split.task.augment = AUGMENT
    split = replace(split, test=split.valid) if options.valid else split.merged()
    if "wild" in method:
        share = float(method.rsplit("-", 1)[1]) if method.startswith("gpn") else 0.0
        return _wild(split, share, seed)
    if method == "gpn-synthetic":
        split.task.pool = TensorPool(split.task.x_obs)
    return split


def _wild(split: Split, share: float, seed: int) -> Split:
    """Half of the labels; the other images and OOD images, SVHN and textures alike, as pool.

    Textures are few: half of them may enter the pool, the others are the unseen test set.
    """
    rng = torch.Generator().manual_seed(1000 + seed)
    order = torch.randperm(len(split.task.x_obs), generator=rng)
    labeled, others = order[:WILD_LABELS], order[WILD_LABELS:]
    textures = split.unseen["textures"]
    textures = textures[torch.randperm(len(textures), generator=rng)]
    half = len(textures) // 2
    count = round(share / (1 - share) * len(others))
    ood = [
        rows[torch.randint(len(rows), (count // 2,), generator=rng)]
        for rows in (split.pool_ood, textures[:half])
    ]
    task = split.task.subset(labeled)
    task.pool = TensorPool(torch.cat([split.task.x_obs[others], *ood]))
    return replace(split, task=task, unseen={"textures": textures[half:]})


def fit_plain(split: Split, config: GPNConfig, seed: int, *, exposed: bool) -> AffineGenerator:
    """The trunk with one linear output per class, trained on labels by the same recipe."""
    resolved, seeds = resolve(config, split.task), as_generator(seed)
    device = resolved.train.pick_device()
    task = split.task.to(device, torch.float32)
    network = AffineGenerator(resolved.trunk, task.input_shape, task.n_outputs, 0, seeds)
    fit_features(network.features, lambda: task.x_obs)
    network.to(device)
    rng = as_generator(seeds, device)
    labels = LabelBatches(len(task.x_obs), resolved.train.label_batch, rng)
    ood = split.pool_ood.to(device)

    def rows() -> tuple[Tensor, ...]:
        picked = labels.next()
        parts = [task.x_obs[picked]]
        if exposed:
            size = (resolved.train.pool_batch,)
            parts.append(ood[torch.randint(len(ood), size, generator=rng, device=device)])
        return channels_last(task.augmented(torch.cat(parts), rng)), task.y_obs[picked]

    def terms(x: Tensor, y: Tensor) -> Terms:
        logits = network.columns(x)[0].float()
        known, others = logits[: len(y)], logits[len(y) :]
        found = {"data": cross_entropy(known[None], y, resolved.label_smoothing).mean()}
        if exposed:
            found["exposure"] = -EXPOSURE * others.log_softmax(-1).mean()
        return found

    with seeded_global_rng(seeds):
        train(network, TrainStep(rows, terms, [rng]), resolved.train)
    return network.eval()


def logits_of(network: AffineGenerator, split: Split, n_draws: int = 0) -> Logits:
    """At all test rows: known ones, and each set of unknown ones; of `n_draws` heads with dropout,
    (s, n, o), where that is not 0."""
    sets = {"id": split.test.x_id, "": split.test.x_ood}
    sets |= {f"_unseen_{name}": images for name, images in split.unseen.items()}
    return {suffix: _logits(network, images, n_draws) for suffix, images in sets.items()}


def plain_metrics(logits: Logits, y: Tensor) -> dict[str, float]:
    """Accuracy and calibration, and detection by the largest probability and by the energy."""
    measured = known_metrics(logits["id"].softmax(-1), y) | tempered_metrics(logits["id"], y)
    return measured | detection_metrics(logits, _plain_scores)


def tempered_metrics(logits: Tensor, y: Tensor) -> dict[str, float]:
    """NLL and ECE where each half of the test rows has the likeliest temperature of the other.

    A temperature by few labels that training has not seen does about as well.
    """
    p = torch.empty_like(logits)
    for half, other in ((0, 1), (1, 0)):
        known = logits[other::2]
        p[half::2] = logits[half::2] / likeliest_temperature(known[None], y[other::2])
    found = known_metrics(p.softmax(-1), y)
    return {"nll_tempered": found["nll"], "ece_tempered": found["ece"]}


def known_metrics(p: Tensor, y: Tensor) -> dict[str, float]:
    return {
        "accuracy": float((p.argmax(-1) == y).double().mean()),
        "nll": float(metrics.class_nll(p, y)),
        "ece": float(metrics.calibration_error(p, y)),
    }


def detection_metrics(logits: Logits, scores_of: Callable[[Tensor], Scores]) -> dict[str, float]:
    """Of every score and each set of unknown rows; the largest probability gives no name."""
    measured, known = {}, scores_of(logits["id"])
    for suffix in [name for name in logits if name != "id"]:
        ood = scores_of(logits[suffix])
        for name in known:
            score = "" if name == "msp" else f"_{name}"
            measured |= detection(score + suffix, known[name], ood[name])
    return measured


def _plain_scores(logits: Tensor) -> Scores:
    return {"msp": 1 - logits.softmax(-1).amax(-1), "energy": -logits.logsumexp(-1)}


@torch.no_grad()
def _logits(network: AffineGenerator, images: Tensor, n_draws: int) -> Tensor:
    device = next(network.parameters()).device
    chunks = (channels_last(chunk.to(device)) for chunk in images.split(CHUNK_ROWS))
    if n_draws == 0:
        return torch.cat([network.columns(chunk)[0] for chunk in chunks]).cpu().double()
    features = torch.cat([network.features(chunk) for chunk in chunks])
    with seeded_global_rng(as_generator(0)):
        network.tail.train()
        draws = torch.stack([network.tail(features) for _ in range(n_draws)])
    network.eval()
    return draws.cpu().double()


def _keep(logits: Logits, y: Tensor, path: Path) -> None:
    """What an ensemble needs of a member."""
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save({"logits": logits, "y": y}, path)


def write_ensemble(options: argparse.Namespace) -> None:
    """The ensemble of all kept runs of `plain`, without another fit."""
    paths = [run_path("plain", seed, options) for seed in range(MEMBERS)]
    found = [path for path in paths if path.with_suffix(".pt").exists()]
    if len(found) < 2:
        print(f"an ensemble must have two members, got {len(found)}; run plain first", flush=True)
        return
    kept = [torch.load(path.with_suffix(".pt")) for path in found]
    runs = [harness.load(path) or {} for path in found]
    sets = kept[0]["logits"]
    logits = {name: torch.stack([one["logits"][name] for one in kept]) for name in sets}
    seconds = sum(run["metrics"]["fit_seconds"] for run in runs)
    run = {
        "config": {**runs[0]["config"], "members": len(found)},
        "metrics": {**ensemble_metrics(logits, kept[0]["y"]), "fit_seconds": seconds},
    }
    _show("ensemble", 0, run)
    if options.steps is None:
        _write("ensemble", [run])


def ensemble_metrics(logits: Logits, y: Tensor) -> dict[str, float]:
    """Of members' logits (s, n, o): mean probabilities, and detection as a GPN and a network do."""
    p = logits["id"].softmax(-1).mean(0)
    return known_metrics(p, y) | detection_metrics(logits, _ensemble_scores)


def _ensemble_scores(logits: Tensor) -> Scores:
    return {
        "msp": 1 - logits.softmax(-1).mean(0).amax(-1),
        "variance": metrics.probability_variance(logits),
    }


def _write(method: str, runs: list[dict[str, Any]]) -> None:
    rows = [run["metrics"] for run in runs]
    fit = sum(row["fit_seconds"] for row in rows) / len(rows)
    harness.write_result(
        TASK, method, runs[0]["config"], list(range(len(runs))), rows, {"fit": fit}
    )


if __name__ == "__main__":
    main()
