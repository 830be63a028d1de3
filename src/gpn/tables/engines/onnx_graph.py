"""A regressor of a numeric table as an ONNX graph: rows in, what `gpn predict` writes out.

The graph is the arithmetic of `Regressor.predict_all` at one level and one share of false alarms,
in double precision. Runtimes lack the arc sine in double precision, which one step of Newton's
method gives, and the distribution functions of Student's t and the normal, which tables give. Needs
`pip install gpn[onnx]`.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from gpn.core.checks import require_level
from gpn.core.files import write_atomically
from gpn.core.priors.ard import ARDPrior
from gpn.estimators.closed_form.trees import Trees
from gpn.estimators.intervals.distribution import GAUSSIAN_FREEDOM
from gpn.estimators.intervals.label_noise import LOG_VARYING_RANGE, LabelNoise
from gpn.estimators.ood.detector import CAP, CLIP, FAR, Detector
from gpn.estimators.ood.distances import NEIGHBOURS, TINY
from gpn.estimators.ood.label_range import OUTSIDE_SHARE
from gpn.estimators.ood.pool import EASY
from gpn.estimators.regressor import GPNRegressor
from gpn.methods.gpn.posterior import ClosedFormPosterior

Array = NDArray[Any]
Name = str

OUTPUTS = ("mean", "std", "lower", "upper", "ood_score", "is_ood", "std_total")
OPSET, ML_OPSET, IR_VERSION = 18, 3, 9
T_KNOTS, MAX_BEND = 2**14, 4.0  # of the table of Student's t
NEWTON_STEPS = 12
KERNELS = ("erf", "cos", "matern")


class ExportError(ValueError):
    """A model that has no ONNX form."""


class Graph:
    """Nodes and constants; every operation gives the name of its result."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, value: Any, dtype: Any = np.float64) -> Name:
        from onnx import numpy_helper

        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def __call__(self, kind: str, *inputs: Any, domain: str = "", **attributes: Any) -> Name:
        """One node; numbers and arrays among its inputs become constants."""
        from onnx import helper

        names = [each if isinstance(each, str) else self.constant(each) for each in inputs]
        out = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, names, [out], domain=domain, **attributes))
        return out

    def reduce(self, kind: str, value: Name, axis: int, *, keep: bool = False) -> Name:
        axes = self.constant([axis], np.int64)
        return self(kind, value, axes, keepdims=int(keep))

    def cast(self, value: Name, dtype: str) -> Name:
        from onnx import TensorProto

        return self("Cast", value, to=getattr(TensorProto, dtype))

    def columns(self, value: Name, start: int, end: int) -> Name:
        """Some columns ``(n, end − start)``."""
        ends = (self.constant([each], np.int64) for each in (start, end, 1))
        return self("Slice", value, *ends)

    def smallest(self, values: Name, count: int) -> Name:
        """The smallest numbers of each row ``(n, count)``."""
        from onnx import helper

        out = f"v{len(self.nodes)}"
        inputs = [values, self.constant([count], np.int64)]
        node = helper.make_node("TopK", inputs, [out, f"{out}i"], axis=1, largest=0, sorted=0)
        self.nodes.append(node)
        return out

    def squares(self, value: Name) -> Name:
        """The squared length of each row ``(n, 1)``."""
        return self.reduce("ReduceSum", self("Mul", value, value), 1, keep=True)

    def normal_pdf(self, z: Name) -> Name:
        half = self("Mul", self("Mul", z, z), -0.5)
        return self("Mul", self("Exp", half), 1 / np.sqrt(2 * np.pi))

    def student_cdf(self, z: Name, freedom: float) -> Name:
        """By a table in u = z/√(z² + c), where it is smooth and bounded."""
        bend = min(freedom, MAX_BEND)
        inner = np.linspace(-1, 1, T_KNOTS + 1)[1:-1]
        at_knots = inner * np.sqrt(bend / (1 - inner**2))
        table = special.stdtr(min(freedom, GAUSSIAN_FREEDOM), at_knots)
        values = self.constant(np.concatenate([[0.0], table, [1.0]]))
        u = self("Div", z, self("Sqrt", self("Add", self("Mul", z, z), bend)))
        place = self("Mul", self("Add", u, 1.0), T_KNOTS / 2)
        whole = self("Min", self("Floor", place), float(T_KNOTS - 1))
        index = self.cast(whole, "INT64")
        low = self("Gather", values, index)
        high = self("Gather", values, self("Add", index, self.constant(1, np.int64)))
        return self("Add", low, self("Mul", self("Sub", place, whole), self("Sub", high, low)))

    def student_pdf(self, z: Name, freedom: float) -> Name:
        if np.isinf(freedom):
            return self.normal_pdf(z)
        norm = np.exp(-special.betaln(0.5, freedom / 2)) / np.sqrt(freedom)
        base = self("Add", self("Mul", self("Mul", z, z), 1 / freedom), 1.0)
        return self("Mul", self("Pow", base, -(freedom + 1) / 2), norm)

    def arc_sine(self, value: Name) -> Name:
        """In double precision: one Newton step from single precision."""
        first = self.cast(self("Asin", self.cast(value, "FLOAT")), "DOUBLE")
        sine = self("Sin", first)
        cosine = self("Sqrt", self("Max", self("Sub", 1.0, self("Mul", sine, sine)), 1e-12))
        return self("Add", first, self("Div", self("Sub", value, sine), cosine))

    def trees(self, trees: Trees, rows: Name) -> Name:
        """The sum over trees ``(n, 1)``."""
        from onnx import helper

        parts = [trees._nodes(number) for number in range(len(trees.value))]
        sizes = [len(nodes) for nodes in parts]
        nodes = np.concatenate(parts)
        tree = np.repeat(np.arange(len(parts)), sizes)
        own = np.concatenate([np.arange(size) for size in sizes])
        leaf = nodes["is_leaf"] != 0
        double = helper.np_dtype_to_tensor_dtype(np.dtype("float64"))

        def numbers(name: str, values: Array) -> Any:
            return helper.make_tensor(name, double, [len(values)], values)

        found = self(
            "TreeEnsembleRegressor",
            rows,
            domain="ai.onnx.ml",
            n_targets=1,
            nodes_treeids=tree.tolist(),
            nodes_nodeids=own.tolist(),
            nodes_featureids=nodes["feature_idx"].tolist(),
            nodes_values_as_tensor=numbers("values", nodes["num_threshold"]),
            nodes_modes=np.where(leaf, "LEAF", "BRANCH_LEQ").tolist(),
            nodes_truenodeids=np.where(leaf, 0, nodes["left"]).tolist(),
            nodes_falsenodeids=np.where(leaf, 0, nodes["right"]).tolist(),
            target_treeids=tree[leaf].tolist(),
            target_nodeids=own[leaf].tolist(),
            target_ids=np.zeros(int(leaf.sum()), int).tolist(),
            target_weights_as_tensor=numbers("weights", nodes["value"][leaf]),
        )
        return self("Add", self.cast(found, "DOUBLE"), trees.baseline)


def export_onnx(model: Any, path: Path, *, level: float = 0.95, fpr: float = 0.05) -> None:
    """Write a `TableModel` of numbers by columns of numbers as an ONNX file.

    The input "rows" ``(n, d)`` holds the columns of `model.encoder.names` in double precision,
    without missing values; the outputs, ``(n,)`` each, are those of `gpn predict`.
    """
    require_level(level)
    regressor = _exportable(model)
    try:
        import onnx
        from onnx import TensorProto, helper
    except ImportError as error:
        raise ImportError(f"an export needs onnx ({error}); pip install 'gpn[onnx]'.") from error
    graph = Graph()
    found = _outputs(graph, regressor, level, regressor.threshold(fpr))
    for name in OUTPUTS:
        axis = graph.constant([1], np.int64)
        value = graph("Squeeze", found[name], axis)
        graph.nodes.append(helper.make_node("Identity", [value], [name]))
    kinds = {name: TensorProto.BOOL if name == "is_ood" else TensorProto.DOUBLE for name in OUTPUTS}
    rows = helper.make_tensor_value_info("rows", TensorProto.DOUBLE, ["n", model.encoder.width])
    outputs = [helper.make_tensor_value_info(name, kinds[name], ["n"]) for name in OUTPUTS]
    body = helper.make_graph(graph.nodes, "gpn", [rows], outputs, graph.constants)
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", ML_OPSET)]
    made = helper.make_model(body, opset_imports=opsets, ir_version=IR_VERSION)
    helper.set_model_props(made, {"columns": "\n".join(model.encoder.names)})
    onnx.checker.check_model(made)
    write_atomically(path, made.SerializeToString())


def _exportable(model: Any) -> GPNRegressor:
    """The regressor of a model that has an ONNX form; others are refused, each with the reason."""
    regressor, encoder = model.estimator, model.encoder
    posterior = getattr(regressor, "posterior_", None)
    mean = getattr(regressor, "mean_", None)
    prior = getattr(getattr(posterior, "generator", None), "prior", None)
    reasons = {
        "it predicts classes": model.is_classifier,
        "it is no GPN in closed form": not isinstance(posterior, ClosedFormPosterior),
        "it reads categories": bool(encoder.categories),
        "it reads dates, units or decimal commas": bool(encoder.times or encoder.units),
        "it has constant columns, whose other values it flags": bool(encoder.constants),
        "its mean is a model of your own": mean is not None and bool(mean.models),
        "its mean has networks": mean is not None and mean.networks is not None,
        "it is calibrated": getattr(regressor, "calibration_", None) is not None,
        "it has too few labels for a detector": getattr(regressor, "detector_", None) is None,
        "it has too few labels to learn their scatter": regressor.__dict__.get("label_noise_")
        is None,
    }
    found = [reason for reason, holds in reasons.items() if holds]
    if not found and (not isinstance(prior, ARDPrior) or prior.activation not in KERNELS):
        found = ["its prior has a kernel that ONNX lacks"]
    if found:
        raise ExportError(
            f"a model must be a regressor of numeric columns in closed form to have an ONNX form; "
            f"{found[0]}. Use gpn predict, or gpn.Scorer in Python."
        )
    return regressor


def _outputs(g: Graph, regressor: GPNRegressor, level: float, limit: float) -> dict[str, Name]:
    """Every output ``(n, 1)``, as `Regressor._predicted` computes it."""
    detector, noise = regressor.detector_, regressor._noise[0]
    assert detector is not None
    columns = _scaled(g, regressor)
    inputs = columns
    if regressor.mean_ is not None:
        assert regressor.mean_ is not None
        inputs = g("Concat", columns, g.trees(regressor.mean_.trees[0], "rows"), axis=1)
    mean, variance = _moments(g, regressor, inputs)
    odds = _log_odds(g, detector, columns)
    known = _known(g, regressor, odds)
    scale = _noise_scale(g, noise, inputs, variance)
    prior = g("Max", variance, regressor.gate_variance_)
    gated = g("Add", variance, g("Mul", g("Sub", 1.0, known), g("Sub", prior, variance)))
    other = g("Max", g("Sqrt", g("Add", prior, noise.noise_variance)), scale)
    unit = float(np.ravel(regressor.y_scale_.scale)[0])
    shift = float(np.ravel(regressor.y_scale_.shift)[0])
    half = _half_width(g, noise.freedom, level, known, scale, other)
    center = g("Add", g("Mul", mean, unit), shift)
    wide = g("Mul", half, unit)
    spread = 1.0 if np.isinf(noise.freedom) else noise.freedom / (noise.freedom - 2)
    own = g("Mul", known, g("Mul", g("Mul", scale, scale), spread))
    total = g("Add", own, g("Mul", g("Sub", 1.0, known), g("Mul", other, other)))
    if regressor.label_range_ is not None:
        low, high = (
            float(np.ravel(end)[0])
            for end in (regressor.label_range_.low, regressor.label_range_.high)
        )
        ends = [g("Div", g("Sub", end, mean), scale) for end in (low, high)]
        inside = g("Sub", *(g.student_cdf(z, noise.freedom) for z in reversed(ends)))
        outside = g("Sub", 1.0, g("Min", g("Max", inside, 0.0), 1.0))
        evidence = g("Mul", outside, OUTSIDE_SHARE / regressor.label_range_.usual)
        odds = g("Add", odds, g("Log", g("Add", evidence, 1.0)))
    score = _probability(g, detector, odds)
    return {
        "mean": center,
        "std": g("Mul", g("Sqrt", gated), unit),
        "lower": g("Sub", center, wide),
        "upper": g("Add", center, wide),
        "ood_score": score,
        "is_ood": g("Greater", score, limit),
        "std_total": g("Mul", g("Sqrt", total), unit),
    }


def _scaled(g: Graph, regressor: GPNRegressor) -> Name:
    scale = regressor.x_scale_
    z = g("Div", g("Sub", "rows", scale.shift), scale.scale)
    if scale.bend is None:
        return z
    size = g("Abs", z)
    excess = g("Max", g("Sub", size, scale.bend), 0.0)
    bent = g("Add", g("Sub", size, excess), g("Log", g("Add", excess, 1.0)))
    return g("Mul", g("Sign", z), bent)


def _moments(g: Graph, regressor: GPNRegressor, x: Name) -> tuple[Name, Name]:
    """`KernelGenerator.moments`, rows first."""
    posterior = regressor.posterior_
    assert isinstance(posterior, ClosedFormPosterior)
    generator = posterior.generator
    prior = generator.prior
    weights, root, landmarks = (
        each.detach().cpu().double().numpy()
        for each in (generator.weights, generator.root, generator.landmarks)
    )
    scales = np.array(prior.column_scales)
    a, b, d = g("Div", x, scales), landmarks / scales, len(scales)
    products, squares = g("MatMul", a, b.T), g.squares(a)
    if prior.activation == "erf":
        lengths = g("Sqrt", g("Add", squares, prior.bias + 0.5))
        others = 1 / np.sqrt((b**2).sum(1) + prior.bias + 0.5)
        cosines = g("Div", g("Mul", g("Add", products, prior.bias), others[None]), lengths)
        cosines = g("Min", g("Max", cosines, -1.0), 1.0)
        nonlinear = g("Mul", g.arc_sine(cosines), 2 / np.pi)
        own = g("Div", g("Add", squares, prior.bias), g("Add", squares, prior.bias + 0.5))
        variance = g("Mul", g.arc_sine(own), 2 / np.pi)
    else:
        twice = g("Sub", g("Add", squares, (b**2).sum(1)[None]), g("Mul", products, 2.0))
        twice = g("Max", twice, 0.0)
        nonlinear = _stationary(g, prior.activation, twice)
        variance = g("Add", g("Mul", squares, 0.0), 1.0)
    linear = prior.linear / d
    cross = g("Add", g("Mul", nonlinear, prior.height), g("Mul", products, linear))
    variance = g("Add", g("Mul", variance, prior.height), g("Mul", squares, linear))
    mean = g("MatMul", cross, weights)
    if prior.mean_columns:
        mean = g("Add", mean, g.columns(x, d - prior.mean_columns, d))
    told = g.squares(g("MatMul", cross, root.T))
    return mean, g("Max", g("Sub", variance, told), 0.0)


def _stationary(g: Graph, activation: str, twice: Name) -> Name:
    if activation == "cos":
        return g("Exp", g("Mul", twice, -0.5))
    lengths = g("Sqrt", g("Max", g("Mul", twice, 5.0), 1e-20))
    cubic = g("Add", g("Add", lengths, 1.0), g("Mul", g("Mul", lengths, lengths), 1 / 3))
    return g("Mul", cubic, g("Exp", g("Neg", lengths)))


def _noise_scale(g: Graph, noise: LabelNoise, x: Name, variance: Name) -> Name:
    """`LabelNoise.scale`."""
    known = g("Min", variance, noise.known_variance)
    total = g("Mul", g("Add", known, noise.noise_variance), noise.factor**2)
    if noise.varying is not None:
        low, high = LOG_VARYING_RANGE
        logs = g("Min", g("Max", g.trees(noise.varying, x), low), high)
        total = g("Mul", total, g("Exp", logs))
    return g("Sqrt", g("Add", total, g("Sub", variance, known)))


def _half_width(
    g: Graph, freedom: float, level: float, known: Name, scale: Name, other: Name
) -> Name:
    """The quantile of a label's mixture above its centre, by Newton's method from the mean end."""
    top = (1 + level) / 2
    student = special.stdtrit(min(freedom, GAUSSIAN_FREEDOM), top)
    first, second = g("Mul", scale, float(student)), g("Mul", other, float(special.ndtri(top)))
    low, high = g("Min", first, second), g("Max", first, second)
    unknown = g("Sub", 1.0, known)
    value = g("Add", g("Mul", known, first), g("Mul", unknown, second))
    for _ in range(NEWTON_STEPS):
        t, z = g("Div", value, scale), g("Div", value, other)
        share = g("Mul", known, g.student_cdf(t, freedom))
        gap = g("Sub", g("Add", share, g("Mul", unknown, g.student_cdf(z, np.inf))), top)
        slope = g(
            "Add",
            g("Mul", known, g("Div", g.student_pdf(t, freedom), scale)),
            g("Mul", unknown, g("Div", g.normal_pdf(z), other)),
        )
        is_low = g("Less", gap, 0.0)
        low, high = g("Where", is_low, value, low), g("Where", is_low, high, value)
        step = g("Sub", value, g("Div", gap, g("Max", slope, 1e-300)))
        inside = g("And", g("GreaterOrEqual", step, low), g("LessOrEqual", step, high))
        value = g("Where", inside, step, g("Mul", g("Add", low, high), 0.5))
    is_known = g("GreaterOrEqual", known, 1.0)
    return g("Where", is_known, first, value)


def _known(g: Graph, regressor: GPNRegressor, odds: Name) -> Name:
    """P(known | x): 1 − `Detector.doubt`."""
    detector = regressor.detector_
    assert detector is not None
    low, high = detector._gate_ends
    beyond = g("Div", g("Sub", odds, low), max(high - low, 1e-9))
    atypical = g("Min", g("Max", beyond, 0.0), 1.0)
    return g("Sub", 1.0, g("Mul", atypical, _probability(g, detector, odds)))


def _probability(g: Graph, detector: Detector, odds: Name) -> Name:
    moved = g("Add", odds, float(special.logit(detector.share)))
    return g("Div", 1.0, g("Add", g("Exp", g("Neg", moved)), 1.0))


def _log_odds(g: Graph, detector: Detector, x: Name) -> Name:
    """`Detector.log_odds`."""
    rows = g("Div", g("Sub", x, detector.shift), detector.scale)
    bent, ranks = _arc_sinh(g, rows), _ranks(g, detector, rows)
    total = None
    for number, member in enumerate(detector.members):
        distances = _distances(g, detector, number, rows, ranks)
        shares = g.trees(member.trees, g("Concat", bent, *distances, axis=1))
        ends = [g("Sub", distances[i], float(member.furthest[k])) for k, i in enumerate((0, 2))]
        beyond = g("Max", g("Max", *ends), 0.0)
        least = g("Min", g("Mul", g("Sub", g("Mul", beyond, 2 / FAR), 1.0), CAP), CAP)
        odds = g("Add", g("Max", _logit(g, shares), least), beyond)
        total = odds if total is None else g("Add", total, odds)
    assert total is not None
    outlier = g("Mul", total, 1 / len(detector.members))
    return outlier if detector.pool is None else _with_pool(g, detector, rows, outlier)


def _with_pool(g: Graph, detector: Detector, rows: Name, outlier: Name) -> Name:
    """`PoolOdds.add` of the mean log odds of the members' pool trees."""
    pool = detector.pool
    assert pool is not None
    count, sums = len(detector.members), []
    for kind, coefficient in enumerate(pool.coefficients):
        total = None
        for member in detector.members:
            trees = (member.pool_trees, member.pool_boosting)[kind]
            assert trees is not None
            found = g.trees(trees, rows)
            odds = g("Min", g("Max", found, -CAP), CAP) if kind else _logit(g, found)
            total = odds if total is None else g("Add", total, odds)
        assert total is not None
        sums.append(g("Mul", total, coefficient / count))
    in_pool = g("Add", g("Sum", *sums), pool.intercept - pool.typical)
    weight = min(0.0, float(np.log((1 - pool.auc + 1e-3) / EASY)))
    one = g("Add", outlier, weight)
    size = g("Abs", g("Sub", one, in_pool))
    return g("Add", g("Max", one, in_pool), g("Log", g("Add", g("Exp", g("Neg", size)), 1.0)))


def _logit(g: Graph, shares: Name) -> Name:
    clipped = g("Min", g("Max", shares, CLIP), 1 - CLIP)
    return g("Log", g("Div", clipped, g("Sub", 1.0, clipped)))


def _arc_sinh(g: Graph, x: Name) -> Name:
    """sign(x) log(|x| + √(x² + 1)), in double precision."""
    size = g("Abs", x)
    root = g("Sqrt", g("Add", g("Mul", x, x), 1.0))
    return g("Mul", g("Sign", x), g("Log", g("Add", size, root)))


def _distances(
    g: Graph, detector: Detector, number: int, rows: Name, ranks: tuple[Name, Name]
) -> list[Name]:
    """The six distances ``(n, 1)`` of one member."""
    distances = detector.members[number].distances
    white = g("MatMul", g("Sub", rows, distances.centre), distances.whitening)
    white_labels = (distances.labels - distances.centre) @ distances.whitening
    low, high = distances.ordered[0], distances.ordered[-1]
    excess = g("Max", g("Max", g("Sub", rows, high), g("Sub", low, rows)), 0.0)
    outside = g("Log", g("Add", g("Mul", excess, 10.0), 1.0))
    return [
        _neighbours(g, rows, distances.labels),
        _neighbours(g, white, white_labels),
        g("Mul", g("Log", g("Add", g.squares(white), TINY**2)), 0.5),
        *(g.columns(each, number, number + 1) for each in ranks),
        g.reduce("ReduceSum", outside, 1, keep=True),
    ]


def _neighbours(g: Graph, rows: Name, labels: Array) -> Name:
    """log of the mean distance to the nearest labels."""
    products = g("Add", g("MatMul", rows, -2 * labels.T), (labels**2).sum(1)[None])
    squared = g("Add", products, g.squares(rows))
    nearest = g.smallest(squared, min(NEIGHBOURS, len(labels)))
    mean = g.reduce("ReduceMean", g("Sqrt", g("Max", nearest, 0.0)), 1, keep=True)
    return g("Log", g("Add", mean, TINY))


def _ranks(g: Graph, detector: Detector, rows: Name) -> tuple[Name, Name]:
    """The sum over columns of tail ranks, and the largest, for each member ``(n, k)``."""
    tables = detector._joint_distances.ranks
    n_columns, size, _ = tables.entry.shape
    cells = g("Unsqueeze", rows, g.constant([2], np.int64))
    counts = [
        g.reduce("ReduceSum", g.cast(g(kind, tables.ordered[None], cells), "INT64"), 2)
        for kind in ("Less", "LessOrEqual")
    ]
    starts = g.constant(np.arange(n_columns) * size, np.int64)
    place = g("Add", g("Add", *counts), starts)
    entry = tables.logs[tables.entry.reshape(n_columns * size, -1)]
    tails = g("Gather", entry, place)
    return g.reduce("ReduceSum", tails, 1), g.reduce("ReduceMax", tails, 1)
