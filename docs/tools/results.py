"""Fill the tables and numbers of README and docs from result files: `make results`.

A document holds them between two comments, `results: name` and `end of results`. A test compares
each with what its function below gives.
"""

import json
import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

from experiments import classes, harness, optimisation, practitioner_tables
from experiments.fidelity import reach
from experiments.fidelity import report as fidelity
from experiments.paper import table as paper
from experiments.paper.figures.modern import LABELS as MODERN
from experiments.paper.figures.modern import detection_key
from experiments.paper.figures.modern import measured as modern_metrics
from experiments.shifts import report as shifts
from experiments.tables import report as tables
from experiments.testbed import report as testbed

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "experiments" / "results"
BLOCK = re.compile(r"(<!-- results: ([a-z0-9-]+) -->\n)(.*?)(<!-- end of results -->)", re.DOTALL)
POOLS = {"none": "no pool", "like": "pool like the labels", "mixed": "pool with shifted rows"}
SIMPLE = ("knn", "isolation-forest", "mahalanobis", "ensemble")
WIDE = '<div class="numbers" markdown></div>\n\n'


def loaded(*path: str) -> dict[str, Any]:
    return json.loads(RESULTS.joinpath(*path).read_text())


def metric(task: str, method: str, name: str) -> float:
    return loaded(task, f"{method}.json")["metrics"][name]["mean"]


def percent(share: float, digits: int = 0) -> str:
    return f"{100 * share:.{digits}f} %"


def suite(method: str) -> dict[str, float]:
    """How a method does on the suite of tables: counts of tables, mean ranks, mean coverage."""
    found = [means for means in tables.measured().values() if method in means]
    return {
        "tables": len(found),
        "near": sum(tables.above_best(one, method) <= tables.NEAR_NLL for one in found),
        "close": sum(tables.ratio_to_best(one, method) <= tables.NEAR_RMSE for one in found),
        "nll_rank": fmean(tables.rank(one, method, "nll") for one in found),
        "rmse_rank": fmean(tables.rank(one, method, "rmse") for one in found),
        "coverage": fmean(one[method]["coverage_95"] for one in found),
        "seconds": fmean(one[method]["fit_seconds"] for one in found),
    }


def detection(pool: str) -> dict[str, float]:
    """AUC, share of cells near the best simple detector, false alarms, flags of far rows."""
    found = shifts.measured()
    cells = [
        (one, key)
        for one in found.values()
        for key in one["gpn"]
        if key.startswith("auc/") and key.endswith(f"/{pool}")
    ]
    own = [one["gpn"][key] for one, key in cells]
    best = [max(one[name][key] for name in shifts.OTHERS) for one, key in cells]
    simple = {name: fmean(one[name][key] for one, key in cells) for name in shifts.OTHERS}
    return {
        "auc": fmean(own),
        "best": fmean(best),
        "near": fmean(a >= b - shifts.NEAR for a, b in zip(own, best, strict=True)),
        "alarms": fmean(one["gpn"][f"false_alarms/{pool}"] for one in found.values()),
        "far": fmean(one["gpn"][f"flagged/one column +20 sd/{pool}"] for one in found.values()),
        **simple,
    }


def readme_numbers() -> str:
    ours, boosting, forest = (suite(n) for n in ("gpn", "gradient-boosting", "random-forest"))
    ensemble, gp, without = suite("deep-ensemble"), suite("gp-ard"), detection("none")
    return f"""\
| on real tables | gpn | what you would use otherwise |
| --- | --- | --- |
| likelihood of new labels: best, or within 0.05 nats of the best | **{ours["near"]} of {ours["tables"]} tables** | Gaussian process {gp["near"]}, random forest {forest["near"]}, deep ensemble {ensemble["near"]}, gradient boosting {boosting["near"]} |
| error (RMSE) on new rows: best, or within 3 % of the best | **{ours["close"]} of {ours["tables"]} tables** | Gaussian process {gp["close"]}, random forest {forest["close"]}, deep ensemble {ensemble["close"]}, gradient boosting {boosting["close"]} |
| shifted rows against known rows, mean AUC without a pool | **{without["auc"]:.3f}** | distance to 5 neighbours {without["knn"]:.3f}, Mahalanobis {without["mahalanobis"]:.3f}, isolation forest {without["isolation-forest"]:.3f} |
"""


def readme_worse() -> str:
    found = {name: suite(name) for name in ("gpn", "gradient-boosting")}
    measured = tables.measured()
    worst = max(measured, key=lambda name: tables.above_best(measured[name], "gpn"))
    furthest = max(measured, key=lambda name: tables.ratio_to_best(measured[name], "gpn"))
    lost = {name: class_nll(name, "50") for name in ("iris", "wine")}
    classes_lost = [
        f"{name} {theirs:.3f} against {ours:.3f}"
        for name, (ours, theirs) in lost.items()
        if theirs < ours
    ]
    return wrapped(
        f"**Where it is worse.** A fit takes {found['gpn']['seconds']:.0f} seconds on average on one core of a busy machine, "
        f"gradient boosting {found['gradient-boosting']['seconds']:.0f}. On {worst} the "
        f"{best_at(measured[worst], 'nll')} has the better likelihood, by "
        f"{tables.above_best(measured[worst], 'gpn'):.2f} nats; on {furthest} our error is "
        f"{tables.ratio_to_best(measured[furthest], 'gpn'):.1f} times that of the "
        f"{best_at(measured[furthest], 'rmse')}. With 50 labels logistic regression has the lower "
        f"NLL on {len(classes_lost)} of 4 class tables ({'; '.join(classes_lost)}). Rows whose "
        "*target* lies beyond the labels' are harder to detect than others without a pool (AUC "
        f"{target_auc('none'):.2f})." + behind_on_practitioner_tables() + behind_in_optimisation()
    )


def behind_on_practitioner_tables() -> str:
    """On which tables that are taken as they come a careful pipeline is ahead, if any."""
    lost = " and ".join(behind_pipeline())
    if not lost:
        return ""
    return (
        f" Of twelve tables taken as they come, a careful scikit-learn pipeline is ahead on {lost}."
    )


def behind_in_optimisation() -> str:
    """On how many test functions a Gaussian process ends with the lower mean regret, if any."""
    regret = loaded("optimisation.json")["regret"].values()
    behind = sum(one["gpn-qlogei"]["mean"][-1] > one["gp-qlogei"]["mean"][-1] for one in regret)
    if behind == 0:
        return ""
    return (
        " In Bayesian optimisation with expected improvement, BoTorch's Gaussian process ends with "
        f"the lower regret on {behind} of {len(regret)} test functions."
    )


def best_at(means: Any, metric_name: str) -> str:
    label = tables.LABELS[min(means, key=lambda method: means[method][metric_name])]
    return {"GP, ARD": "Gaussian process"}.get(label, label)


def wrapped(text: str) -> str:
    return textwrap.fill(text, 118, break_on_hyphens=False) + "\n"


def class_nll(table: str, labels: str) -> tuple[float, float]:
    """The NLL of our classifier and of logistic regression."""
    ours, logistic = (
        loaded("classes", table, f"{name}.json")["metrics"][f"nll/{labels}"]["mean"]
        for name in ("gpn", "logistic-regression")
    )
    return ours, logistic


def target_auc(pool: str) -> float:
    """The mean AUC at rows whose target lies above that of all labels."""
    key = f"auc/top of a target/{pool}"
    return fmean(one["gpn"][key] for one in shifts.measured().values() if key in one["gpn"])


def tables_text() -> str:
    ours = suite("gpn")
    return f"""\
The GPN's likelihood is the best, or within 0.05 nats of the best, on {ours["near"]} of {ours["tables"]} tables (mean rank
{ours["nll_rank"]:.1f}). Its RMSE is the best, or within 3 % of the best, on {ours["close"]} (mean rank {ours["rmse_rank"]:.1f}). Its 95 % intervals hold
{percent(ours["coverage"], 1)} of new labels on average, without calibration.

{WIDE}{tables.summary()}
"""


def tables_each() -> str:
    return f"{WIDE}{tables.table()}\n"


def shifts_text() -> str:
    none, mixed = detection("none"), detection("mixed")
    return wrapped(f"""Without a pool the mean AUC is {none["auc"]:.3f}; the best of three simple detectors, chosen in each cell with knowledge of the
answer, has {none["best"]:.3f}. In {percent(none["near"])} of the cells the GPN is at most {shifts.NEAR} behind that best. With a mixed pool it has
{mixed["auc"]:.3f}, and is at most {shifts.NEAR} behind in {percent(mixed["near"])} of the cells. Rows that are 20 standard deviations away in one
column are flagged in {percent(none["far"], 1)} of all cases, and {percent(mixed["alarms"], 1)} to {percent(none["alarms"], 1)} of known rows at a promised 5 %.""")


def shifts_each() -> str:
    """The mean AUC of each shift over the tables that have it; the others see no pool."""
    found, rows = shifts.measured(), []
    for shift in shifts.shifts_of(found):
        some = [one for one in found.values() if f"auc/{shift}/none" in one["gpn"]]

        def mean(method: str, pool: str, shift: str = shift, some: Any = some) -> float:
            return fmean(one[method][f"auc/{shift}/{pool}"] for one in some)

        best = fmean(max(one[n][f"auc/{shift}/none"] for n in shifts.OTHERS) for one in some)
        own = [mean("gpn", pool) for pool in POOLS]
        others = [mean(name, "none") for name in SIMPLE]
        numbers = [f"{value:.3f}" for value in (*own, *others, best)]
        rows.append([shift, str(len(some)), *numbers])
    ours = [f"GPN, {words}" for words in POOLS.values()]
    heads = ["shift", "tables", *ours, *(shifts.LABELS[name] for name in SIMPLE), "best of three"]
    return f"{WIDE}{harness.markdown(heads, rows)}\n"


def practitioner_text() -> str:
    """The table of the report, and who is behind on which tables."""
    splits = len(loaded("practitioner", "planes.json")["seeds"])
    lost = ", ".join(
        f"{name} ({a:.3f} against {b:.3f})" for name, (a, b) in behind_pipeline().items()
    )
    said = f"Means and standard deviations of {splits} random splits. It is behind by more than 0.02 on {lost or 'none'}."
    return f"{WIDE}{practitioner_tables.report()}\n\n{wrapped(said)}"


def behind_pipeline() -> dict[str, tuple[float, float]]:
    """Our score and that of the pipeline, on the practitioner tables where ours is behind."""
    scores = {
        name: (metric("practitioner", name, "score"), metric("practitioner", name, "baseline"))
        for name in practitioner_tables.TABLES
    }
    return {name: (a, b) for name, (a, b) in scores.items() if a < b - practitioner_tables.NEAR}


def class_tables() -> str:
    return f"{WIDE}{classes.report()}\n"


def paper_text() -> str:
    auc = {task: metric(task, "gpn", "ood_auc") for task in ("superconductor", "mnist", "cifar10")}
    return wrapped(f"""The paper's tables, measured again with a trained network: OOD AUC {auc["superconductor"]:.3f} on superconductor (the paper
0.96), {auc["mnist"]:.4f} on MNIST against Fashion-MNIST (1.00), and {auc["cifar10"]:.4f} with {percent(metric("cifar10", "gpn", "accuracy"), 1)} accuracy on CIFAR-10
against SVHN (0.96 and 75.8 %).""")


def paper_table(task: str) -> Callable[[], str]:
    return lambda: f"{WIDE}{paper.table(task)}\n"


def modern_text() -> str:
    """Accuracy, calibration and detection with a residual network, and where others win."""

    def of(method: str, name: str) -> float:
        key = detection_key(method, name) if name.startswith("ood") else name
        return metric("cifar10-modern", method, key)

    known, unseen = "ood_auc", "ood_auc_unseen_textures"
    return (
        wrapped(
            f"With a residual network, a pool half of which is SVHN, and {seeds_of('gpn')} seeds, AUC against SVHN is "
            f"{of('gpn', known):.4f}, and against textures, which no pool holds, {of('gpn', unseen):.3f}. With synthetic outliers "
            f"alone it is {of('gpn-synthetic', known):.4f} and {of('gpn-synthetic', unseen):.3f}; with the largest probability of "
            f"plain training {of('plain', known):.3f} and {of('plain', unseen):.3f}."
        )
        + "\n"
        + wrapped(
            f"Accuracy is {percent(of('gpn', 'accuracy'), 1)}, that of plain training {percent(of('plain', 'accuracy'), 1)}, and the NLL "
            f"{of('gpn', 'nll'):.3f} against {of('plain', 'nll'):.3f}, which a temperature would lower to {of('plain', 'nll_tempered'):.3f}; "
            f"a fit takes {of('gpn', 'fit_seconds'):.0f} seconds on average, plain training {of('plain', 'fit_seconds'):.0f}. **Where it is worse.** "
            f"Three plain networks together have {percent(of('ensemble', 'accuracy'), 1)}. With half of the labels and 10 % OOD "
            f"images in the pool, accuracy is {percent(of('gpn-wild-0.1', 'accuracy'), 1)} and NLL {of('gpn-wild-0.1', 'nll'):.3f}; plain training "
            f"has {percent(of('plain-wild', 'accuracy'), 1)}, and {of('plain-wild', 'nll_tempered'):.3f} with a temperature."
        )
        + "\n"
        + wrapped(
            "Pools of 10 and 1 % hold other textures than the test. To detect 95 % of new textures flags "
            f"{percent(of('gpn-wild-0.1', 'ood_fpr95_unseen_textures'), 1)} of known images with the former, "
            f"{percent(of('gpn-wild-0.01', 'ood_fpr95_unseen_textures'), 1)} with the latter, and with plain training "
            f"{percent(of('plain-wild', 'ood_fpr95_unseen_textures'), 1)}."
        )
    )


def seeds_of(method: str) -> int:
    return len(loaded("cifar10-modern", f"{method}.json")["seeds"])


def modern_table() -> str:
    """One row per method that was measured; what was not recorded stays empty."""
    columns: list[tuple[str, str, Callable[[float], str]]] = [
        ("accuracy", "accuracy", lambda v: percent(v, 1)),
        ("NLL", "nll", lambda v: f"{v:.3f}"),
        ("ECE", "ece", lambda v: f"{v:.3f}"),
        ("AUC, SVHN", "ood_auc", lambda v: f"{v:.4f}"),
        ("AUC, textures", "ood_auc_unseen_textures", lambda v: f"{v:.3f}"),
        ("FPR95, textures", "ood_fpr95_unseen_textures", lambda v: percent(v, 1)),
        ("fit, s", "fit_seconds", lambda v: f"{v:.0f}"),
    ]
    rows = []
    for method, found in modern_metrics().items():
        keys = [detection_key(method, key) if "ood" in key else key for _, key, _ in columns]
        shown = zip(keys, columns, strict=True)
        cells = [show(found[key]["mean"]) if key in found else "" for key, (_, _, show) in shown]
        rows.append([MODERN[method], *cells, str(seeds_of(method))])
    heads = ["method", *(head for head, *_ in columns), "seeds"]
    return f"{WIDE}{harness.markdown(heads, rows)}\n"


def optimisation_table() -> str:
    return f"{WIDE}{optimisation.table(loaded('optimisation.json'))}\n"


def superconductor_text() -> str:
    none, usual = (f"estimator-{pool}" for pool in ("none", "usual"))
    coverage = [metric("superconductor", name, "ood_coverage") for name in (none, usual)]
    labels = metric("superconductor", none, "label_coverage")
    return wrapped(f"""On the superconductor table, intervals of the *function* at OOD rows hold {percent(coverage[0])} of the truth without a pool, and
{percent(coverage[1])} with one. Without a pool, {percent(labels)} of new labels lie in intervals that promise 95 %.""")


def command_line_text() -> str:
    found = loaded("superconductor", "command-line.json")
    minutes, measured = found["seconds"]["all"] / 60, found["metrics"]
    return wrapped(f"""On the superconductor table (9,857 labels, 81 columns) `fit`, `predict` and `evaluate` take {minutes:.1f} minutes on two CPU cores
with defaults: OOD AUC {measured["ood_auc"]:.3f}, and {percent(measured["coverage_95"])} of new labels lie in their 95 % intervals.""")


def active_learning_text() -> str:
    digits, conductor = (
        loaded("active-learning", f"{n}.json") for n in ("digits", "superconductor")
    )
    needed = digits["labels_for_what_random_reaches"]["suggest"]
    before = conductor["labels_for_what_random_reaches_before"]["suggest"]
    last, gap = conductor["labels"][-1], conductor["suggest_minus_random"][-1]
    error = [conductor["curves"][name][-1]["mean"] for name in ("suggest", "random")]
    doubt = gap["std"] / gap["n"] ** 0.5
    return wrapped(f"""On digits, `suggest` needs {needed:.0f} labels for the accuracy that random choice has at {digits["labels"][-1]}. On the superconductor
table it needs {before:.0f} for the error that random choice has at {conductor["labels"][-2]}, and is no better at {last}: {error[0]:.1f} K against {error[1]:.1f} K over
{gap["n"]} seeds, a difference of {gap["mean"]:.2f} ± {doubt:.2f} K (standard error).""")


def big_pool_text() -> str:
    path = ROOT / "benchmarks" / "results" / "big_pool.json"
    found = {row["what"]: row["value"] for row in json.loads(path.read_text())["rows"]}
    small, large = (
        found[f"default_fit, {rows} rows of 81 float32 in .npy: peak memory"]
        for rows in ("100,000", "10,000,000")
    )
    return wrapped(f"""From 100,000 to 10,000,000 rows of 81 features, peak memory of such a fit goes from {small:.0f} to {large:.0f} MB
([measured](../../benchmarks/results/big_pool.json) with β given).""")


def benchmark(name: str) -> dict[str, float]:
    path = ROOT / "benchmarks" / "results" / f"{name}.json"
    return {row["what"]: row["value"] for row in json.loads(path.read_text())["rows"]}


def large_tables() -> str:
    """Rows per second of files and of Python, beside those of a mean alone."""
    found, long, ray = benchmark("scoring"), benchmark("long_table"), benchmark("engines")
    cases = ("10 columns", "10 columns, fitted with a pool", "81 columns")
    works = {
        "Parquet to Parquet": "gpn, Parquet to Parquet",
        "CSV to CSV": "gpn, CSV to CSV",
        "arrays in Python": "gpn, Python",
        "one row at a time": "gpn, one row at a time in Python",
        "HistGradientBoosting, a mean only": "HistGradientBoosting (100 trees), mean only",
        "scikit-learn's MLP, a mean only": "MLP (one layer of 100), mean only",
        "XGBoost, a mean only": "XGBoost (100 trees), mean only",
    }
    lines = [
        [label, *(f"{found[f'{case}: {work}']:,.0f}" for case in cases)]
        for label, work in works.items()
        if f"{cases[0]}: {work}" in found
    ]
    table = harness.markdown(["rows per second, 500 labels", *cases], lines)
    load = found["load average over the last 15 minutes"]
    shares = [f"{found[f'{case}: processor time of gpn, Python']:.0f}" for case in cases]
    rows = next(what for what in long if what.startswith("gpn predict"))
    return f"""{table}

""" + wrapped(f"""Two cores, on a machine with a load average of {load:.1f} in the quarter of an hour before. A row takes {shares[0]}, {shares[1]} and
{shares[2]} µs of processor time in Python. **Where it is worse**: HistGradientBoosting predicts a mean alone
{1 / found["10 columns: Parquet to Parquet, ratio"]:.0f} times as fast. Over {rows.split(", ")[1]}
memory is flat: {long["peak memory, second half of the time"]:.0f} MB in the second half of the time,
{long["peak memory, first half of the time"]:.0f} MB in the first. Two workers of Ray make
{ray["two workers against twice one"]:.2f} of twice what one makes there
([measured](../../benchmarks/README.md)).""")


def partitions_text() -> str:
    found = benchmark("partitions")
    return wrapped(f"""Half a million labels of 20 columns took {found["500,000 labels: time"]:.0f} s on two cores (load average before:
{found["load average over the last 15 minutes"]:.1f}), {found["500,000 labels: processor time"]:.0f} s of processor time, with at most
{found["peak memory of the process"]:.0f} MB. Ten million would take {found["10,000,000 labels on paper: processor time"]:.0f} s of processor time
([measured](../../benchmarks/results/partitions.json)).""")


def fidelity_table() -> str:
    return f"{WIDE}{fidelity.table()}\n"


def reach_table() -> str:
    found = loaded("fidelity", "reach", "conditioned.json")["metrics"]
    ratio = found["exact_gp_seconds_10000"]["mean"] / found["seconds_10000"]["mean"]
    bands = [found[f"band_coverage_{labels}"]["mean"] for labels in (1000, 10000)]
    text = wrapped(
        f"W2 (covariance error), seconds on one thread of a busy CPU, one seed. With 10,000 labels "
        f"it is {ratio:.0f} times faster than the exact GP. Where the exact posterior is that "
        "narrow, the network's own error shows: the band that should hold 95 % of the exact "
        f"posterior holds {percent(bands[0])} at 1,000 labels and {percent(bands[1])} at 10,000."
    )
    return f"{WIDE}{reach.table()}\n\n{text}"


def newcomer_text() -> str:
    found = loaded("newcomer.json")
    counts = found["counts"]
    return wrapped(
        f"Forty tables, each spoilt in one way, on average over {found['seeds']} data sets: "
        f"{counts['as good']} are predicted as well as their clean version (R² and coverage of "
        f"95 % intervals at most 0.05 lower), {counts['warned']} give a warning that names what "
        f"was spoilt, {counts['silent']} do neither."
    )


def newcomer_table() -> str:
    lines = ["| table | R² (clean) | coverage (clean) | verdict |", "|---|---|---|---|"]
    for row in loaded("newcomer.json")["tables"]:
        figures = (
            f"{row[name]:.{digits}f} ({row[f'clean_{name}']:.{digits}f})"
            for name, digits in (("r2", 2), ("coverage", 3))
        )
        lines.append(f"| {row['table']} | {' | '.join(figures)} | {row['verdict']} |")
    return f"{WIDE}{chr(10).join(lines)}\n"


def agreement_table() -> str:
    lines = ["| fit | between | mean | deviation | score |", "|---|---|---|---|---|"]
    for row in loaded("agreement.json")["table"]:
        mean = row.get("mean", row.get("probability"))
        cells = (mean, row.get("std"), row.get("score"))
        shown = (" " if cell is None else f"{cell:.2g}" for cell in cells)
        lines.append(f"| {row['case']} | {row['between']} | {' | '.join(shown)} |")
    return f"{WIDE}{chr(10).join(lines)}\n"


def thousand_fits_text() -> str:
    found = loaded("thousand_fits.json")
    first, last, growth = found["rows"][1], found["rows"][-1], found["growth"]
    return wrapped(
        f"From 200 to {last['fits']:,} fits in one process, each saved, loaded and asked, memory "
        f"goes from {first['megabytes']:.0f} to {last['megabytes']:.0f} MB, and "
        f"{growth['files']} more files are open."
    )


def testbed_summary() -> str:
    rivals = ("ensemble-plus", "epinet")
    ours, *others = (testbed.ratio(name, 10) for name in ("gpn-true-prior", *rivals))
    beaten = testbed.wins("gpn-true-prior", rivals, 10)
    marginal = {name: testbed.ratio(name, 1) for name in testbed.NAMES}
    second = min((name for name in marginal if name != "gpn-true-prior"), key=marginal.__getitem__)
    text = wrapped(
        f"With the true prior, joint predictions of ten labels (τ = 10) are {ours:.3f} times as far "
        f"from the truth as the MLP's, with ensemble+ {others[0]:.3f} and with the epinet "
        f"{others[1]:.3f} times; it is closer than both in {beaten} of the 12 cells of d and n/d, "
        f"and the best of all agents in {testbed.best_cells(10)}. Of single labels (τ = 1) it is "
        f"{marginal['gpn-true-prior']:.3f}, the next best ({testbed.NAMES[second]}) "
        f"{marginal[second]:.3f}, and it is the best in {testbed.best_cells(1)} cells."
    )
    return f"{text}\n{WIDE}{testbed.summary_table()}\n"


def testbed_worse() -> str:
    def most(row: dict[str, Any]) -> bool:
        return (row["n_inputs"], row["ratio"]) == (100, 1000)

    names = ("gpn-true-prior", "ensemble-plus", "ensemble")
    seconds = {
        name: fmean(row["seconds"] for row in testbed.problems_of(name) if most(row))
        for name in names
    }
    single = {name: testbed.ratio(name, 1, most) for name in names}
    return wrapped(
        f"With 100,000 labels of 100 inputs the Gaussian process is {single['gpn-true-prior']:.2f} "
        f"times as far as the MLP at τ = 1, the plain ensemble {single['ensemble']:.2f} times, and "
        f"takes {seconds['gpn-true-prior']:.1f} s where ensemble+ takes {seconds['ensemble-plus']:.1f} "
        "s as one of fifteen at a time."
    )


def testbed_split(tau: int) -> Callable[[], str]:
    return lambda: f"{WIDE}{testbed.split_table(tau)}\n"


def testbed_cost() -> str:
    metrics = loaded("testbed", "cost.json")["metrics"]
    plus, whole, few = (metrics[name] for name in testbed.COSTS)
    seconds = [one["cpu_seconds"]["mean"] * one["cpu_seconds"]["n"] for one in (plus, whole, few)]
    return wrapped(
        f"On one CPU core, each of {plus['cpu_seconds']['n']} problems of 2 to 1,000 labels alone, fit "
        f"and draws together: ensemble+ takes {seconds[0]:.0f} s of CPU time and has a KL divergence of "
        f"{plus['kl_tau_10']['mean']:.3f} at τ = 10. The Gaussian process with 200 landmarks and "
        f"as many draws as ensemble+ has members, 100, takes {seconds[2]:.1f} s, {seconds[0] / seconds[2]:.0f} times less, and has "
        f"{few['kl_tau_10']['mean']:.3f}; with every label as a landmark and 1,000 draws it takes {seconds[1]:.0f} s "
        f"and has {whole['kl_tau_10']['mean']:.3f}."
    )


def testbed_regression() -> str:
    exact, default = (loaded("testbed", f"{name}.json") for name in ("gpn-true-prior", "gpn"))
    metrics = default["metrics"]["regression_kl"]
    return wrapped(
        f'With the true kernel and the known noise (`gpn.methods.get("gp", prior=...)`) the largest '
        f"KL divergence of {exact['metrics']['regression_kl']['n']} problems, of 1 to 10,000 labels, "
        f"is {exact['regression_kl_max']:.0e}. `GPNRegressor`, told nothing, has a mean of "
        f"{metrics['mean']:.2f} on {metrics['n']} problems of up to 1,000 labels."
    )


def testbed_reference() -> str:
    where = {
        (row["n_inputs"], row["ratio"], row["temperature"], row["seed"])
        for row in testbed.problems_of("hmc")
    }

    def on_these(row: dict[str, Any]) -> bool:
        return (row["n_inputs"], row["ratio"], row["temperature"], row["seed"]) in where

    names = ("gpn-true-prior", "hmc", "ensemble-plus")
    ours, chains, plus = (
        fmean(row["kl_tau_10"] for row in testbed.problems_of(name) if on_these(row))
        for name in names
    )
    sgmcmc = len(testbed.problems_of("sgmcmc")), testbed.ratio_on_own("sgmcmc", 10)
    return wrapped(
        f"On {len(where)} problems of 20 and 100 labels, a hundred Hamiltonian chains over the "
        f"weights of networks with the true widths and variances (`mcmc`) have a KL divergence of "
        f"{chains:.3f} at τ = 10, the Gaussian process {ours:.3f}, ensemble+ {plus:.3f}. sgmcmc "
        f"with the published default settings, on the {sgmcmc[0]} problems of 100 labels, is "
        f"{sgmcmc[1]:.2f} times as far as the MLP, and no reference."
    )


BLOCKS: dict[str, Callable[[], str]] = {
    "readme-numbers": readme_numbers,
    "readme-worse": readme_worse,
    "tables": tables_text,
    "tables-each": tables_each,
    "shifts": shifts_text,
    "shifts-each": shifts_each,
    "classes": class_tables,
    "practitioner": practitioner_text,
    "paper": paper_text,
    **{f"paper-{task}": paper_table(task) for task in ("superconductor", "mnist", "cifar10")},
    "cifar10-modern": modern_text,
    "cifar10-modern-table": modern_table,
    "optimisation": optimisation_table,
    "superconductor": superconductor_text,
    "command-line": command_line_text,
    "active-learning": active_learning_text,
    "big-pool": big_pool_text,
    "large-tables": large_tables,
    "partitions": partitions_text,
    "fidelity": fidelity_table,
    "reach": reach_table,
    "newcomer": newcomer_text,
    "newcomer-each": newcomer_table,
    "agreement": agreement_table,
    "thousand-fits": thousand_fits_text,
    "testbed": testbed_summary,
    "testbed-worse": testbed_worse,
    "testbed-10": testbed_split(10),
    "testbed-1": testbed_split(1),
    "testbed-cost": testbed_cost,
    "testbed-regression": testbed_regression,
    "testbed-reference": testbed_reference,
}


def documents() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def filled(text: str) -> str:
    """The document with every block as its function gives it now."""
    return BLOCK.sub(lambda match: f"{match[1]}\n{BLOCKS[match[2]]()}\n{match[4]}", text)


def main() -> None:
    for path in documents():
        old = path.read_text()
        new = filled(old)
        if new != old:
            path.write_text(new)
            print(f"changed: {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
