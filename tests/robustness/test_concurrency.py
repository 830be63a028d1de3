"""Many threads, forked processes and parallel searches give the same; nothing global is changed."""

import os
import pickle
import random
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.model_selection import GridSearchCV

import gpn
from gpn.tables.model import TableModel
from tests.fuzz import models

X, Y, WORDS, POOL = models.X, models.Y, models.WORDS, models.POOL
NEW = np.random.default_rng(5).normal(size=(200, 2))
Asked = Callable[[int], Any]


@pytest.fixture(scope="module")
def fitted() -> dict[str, Any]:
    return {
        **{name: fit(name) for name in models.METHODS},
        "regressor": gpn.GPNRegressor(models.CONFIG, random_state=0).fit(X, Y, POOL),
        "classifier": gpn.GPNClassifier(models.CONFIG, random_state=0).fit(X, WORDS, POOL),
        "table": models.model("grade"),
    }


def fit(name: str, rng: int | None = 0) -> Any:
    """A method of three steps, which leave codes far from N(0, I): it may say so."""
    method = gpn.methods.get(name, **models.METHODS[name])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gpn.GPNWarning)
        return method.fit(gpn.Task(X, Y[:, None], pool=POOL), rng=rng)


def questions(model: Any) -> Asked:
    """Everything that is asked of a model in use; `seed` decides on the draws."""
    if isinstance(model, gpn.Posterior):
        return lambda seed: (
            model.sample(NEW, 3, rng=seed).numpy(),
            model.variance(NEW, 20, rng=seed).numpy(),
            model.draw(rng=seed)(NEW).numpy(),
        )
    if isinstance(model, TableModel):
        return lambda seed: (
            model.predict(models.table()).drop(columns="class").to_numpy(float),
            model.functions(2, seed)(models.table()).to_numpy(str),
        )
    draw = model.sample_y if isinstance(model, gpn.GPNRegressor) else model.sample_proba
    return lambda seed: (
        draw(NEW, 3, random_state=seed),
        model.ood_score(NEW),
        model.suggest(NEW[:50], 2),
    )


EVERY = [*models.METHODS, "regressor", "classifier", "table"]


def check_equal(answers: Any, expected: Any) -> None:
    for answer, wanted in zip(answers, expected, strict=True):
        np.testing.assert_array_equal(answer, wanted)


@pytest.mark.parametrize("name", EVERY)
def test_eight_threads_answer_as_one(name: str, fitted: dict[str, Any]) -> None:
    ask = questions(fitted[name])
    expected = [ask(seed) for seed in range(16)]
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(ask, range(16)))
    for answer, wanted in zip(answers, expected, strict=True):
        check_equal(answer, wanted)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("name", EVERY)
def test_a_forked_process_answers_as_its_parent(name: str, fitted: dict[str, Any]) -> None:
    ask = questions(fitted[name])
    expected = ask(3)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        with os.fdopen(write, "wb") as pipe:
            pickle.dump(ask(3), pipe)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        content = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    check_equal(pickle.loads(content), expected)


@pytest.mark.filterwarnings("ignore:a fit should see unlabeled rows")
def test_a_parallel_search_finds_what_a_serial_one_does() -> None:
    """Two processes of joblib's loky, each with estimators that were sent to it."""
    choices = {"config": [models.CONFIG, models.CONFIG.replace(beta=0.5)]}
    scores = []
    for jobs in (1, 2):
        search = GridSearchCV(gpn.GPNRegressor(random_state=0), choices, cv=2, n_jobs=jobs)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            search.fit(X, Y)
        scores.append(search.cv_results_["mean_test_score"])
    np.testing.assert_allclose(*scores, rtol=1e-6)


def state() -> dict[str, Any]:
    """What a library has no business changing."""
    numpy_state: Any = np.random.get_state()  # noqa: NPY002
    return {
        "torch": torch.get_rng_state().tolist(),
        "numpy": [part.tolist() if isinstance(part, np.ndarray) else part for part in numpy_state],
        "python": random.getstate(),
        "dtype": torch.get_default_dtype(),
        "gradients": torch.is_grad_enabled(),
        "threads": (torch.get_num_threads(), torch.get_num_interop_threads()),
        "matmul": torch.get_float32_matmul_precision(),
        "tf32": (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "benchmark": torch.backends.cudnn.benchmark,
        "errors": np.geterr(),
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "path": list(sys.path),
        "signals": [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)],
        "recursion": sys.getrecursionlimit(),
        "autocast": torch.is_autocast_enabled("cpu"),
    }


@pytest.mark.usefixtures("as_users_have_it")  # the checker draws random numbers of its own
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_fitting_saving_and_asking_change_nothing_global(
    precision: str, tmp_path: Path, fitted: dict[str, Any]
) -> None:
    """Once torch has set itself up, which the first fit makes it do."""
    train = models.TRAIN.replace(precision=precision)
    before = state()
    model = gpn.GPNRegressor(models.CONFIG.replace(train=train), random_state=0).fit(X, Y, POOL)
    model.save(tmp_path / "m.gpn")
    questions(gpn.load(tmp_path / "m.gpn"))(0)
    assert state() == before


@pytest.mark.usefixtures("as_users_have_it")
@pytest.mark.parametrize("name", models.METHODS)
def test_every_method_leaves_the_global_state_alone(name: str, fitted: dict[str, Any]) -> None:
    before = state()
    questions(fit(name, rng=None))(0)  # without a seed, where a global one would be taken
    assert state() == before


@pytest.mark.filterwarnings("ignore::gpn.GPNWarning")
@pytest.mark.usefixtures("as_users_have_it")
def test_fits_in_threads_give_what_each_gives_alone() -> None:
    """Dropout draws from torch's one generator, and TF32 is a setting of the whole process."""
    trunk = gpn.MLPTrunk(widths=(16,), dropout=0.2)
    train = gpn.TrainConfig(steps=30, device="cpu")
    config = gpn.GPNConfig(trunk=trunk, beta=0.1, noise_std=0.1, train=train)

    def mean(seed: int) -> np.ndarray:
        precision = ("bf16", "float32")[seed % 2]
        own = config.replace(train=train.replace(precision=precision))
        return gpn.GPN(own).fit(gpn.Task(X, Y[:, None], pool=POOL), rng=seed).mean(NEW).numpy()

    alone = [mean(seed) for seed in range(4)]
    before = state()
    with ThreadPoolExecutor(4) as threads:
        check_equal(list(threads.map(mean, range(4))), alone)
    assert state() == before


def in_a_process_of_its_own(code: str, argument: str) -> None:
    command = [sys.executable, "-c", code, argument]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("precision", ["float32", "tf32"])
def test_torchs_newer_names_for_precision_stand(precision: str) -> None:
    """In a process of its own: torch refuses its older names from then on."""
    code = (
        "import sys, torch, gpn\n"
        "torch.backends.cuda.matmul.fp32_precision = 'tf32'\n"
        "x = torch.linspace(-1, 1, 8)[:, None]\n"
        "train = gpn.TrainConfig(steps=2, device='cpu', precision=sys.argv[1])\n"
        "config = gpn.GPNConfig(beta=0.1, noise_std=0.1, train=train)\n"
        "gpn.GPN(config).fit(gpn.Task(x, x, pool=x), rng=0)\n"
        "assert torch.backends.cuda.matmul.fp32_precision == 'tf32'\n"
    )
    in_a_process_of_its_own(code, precision)


def test_importing_changes_nothing_global() -> None:
    """In a fresh process, with what it imports there already."""
    code = (
        "import json, os, random, signal, sys, warnings, numpy as np, torch, pandas\n"
        "import rich.progress, sklearn.preprocessing, sklearn.utils.validation\n"
        "source = open(sys.argv[1]).read().split('def state()')[1].split('@pytest')[0]\n"
        "from typing import Any\n"
        "exec('def state()' + source)\n"
        "before = state()\n"
        "import gpn, gpn.data, gpn.plots, gpn.report, gpn.tables.model\n"
        "after = state()\n"
        "changed = [name for name in before if before[name] != after[name]]\n"
        "assert not changed, changed\n"
    )
    in_a_process_of_its_own(code, __file__)
