"""NGBoost and CatBoost: `pip install gpn[experiments]`.

Both choose their number of trees on a fifth of the training rows and are then fitted to all rows.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from experiments.tables.data import Rows, Targets
from experiments.tables.methods.base import Machine, Predict, held_out, package
from experiments.tables.predictive import gaussian, prediction

LOSS = "RMSEWithUncertainty"
FEWEST_TREES = 3  # per virtual ensemble; CatBoost itself wants two


@dataclass(frozen=True)
class NGBoost:
    """A Gaussian by natural gradients (Duan et al. 2020), depth-3 trees as in its defaults.

    The default rate of 0.01 needs 1,500 trees on some of these tables; five times that rate gives
    the same likelihoods with a fifth of them.
    """

    max_iterations: int = 500
    learning_rate: float = 0.05
    patience: int = 50
    valid_share: float = 0.2
    uses_gpu: ClassVar[bool] = False
    packages: ClassVar[tuple[str, ...]] = ("ngboost", "sklearn")

    def fit(self, x: Rows, y: Targets, *, seed: int, machine: Machine) -> Predict:
        regressor = package("ngboost").NGBRegressor
        options = {"learning_rate": self.learning_rate, "random_state": seed, "verbose": False}
        rows, rest = held_out(len(y), self.valid_share, seed)
        trial = regressor(n_estimators=self.max_iterations, **options).fit(
            x[rows], y[rows], x[rest], y[rest], early_stopping_rounds=self.patience
        )
        trees = 1 + trial.best_val_loss_itr
        model = regressor(n_estimators=trees, **options).fit(x, y)

        def predict(x_new: Rows) -> Any:
            said = model.pred_dist(x_new)
            return prediction(gaussian(said.loc, said.scale))

        return predict


@dataclass(frozen=True)
class CatBoost:
    """Mean and variance by CatBoost's likelihood; its default depth 6, or 4, by validation rows.

    The variance is the total of its virtual ensembles (of labels, and between the ensembles), or
    the predicted one where a model has too few trees for ensembles.
    """

    max_iterations: int = 1_000
    patience: int = 50
    valid_share: float = 0.2
    depths: tuple[int, ...] = (6, 4)
    virtual_ensembles: int = 10
    uses_gpu: ClassVar[bool] = False
    packages: ClassVar[tuple[str, ...]] = ("catboost",)

    def fit(self, x: Rows, y: Targets, *, seed: int, machine: Machine) -> Predict:
        regressor = package("catboost").CatBoostRegressor
        options = {
            "loss_function": LOSS,
            "random_seed": seed,
            "thread_count": machine.threads,
            "verbose": False,
            "allow_writing_files": False,
        }
        rows, rest = held_out(len(y), self.valid_share, seed)
        trials = [
            regressor(iterations=self.max_iterations, depth=depth, **options).fit(
                x[rows],
                y[rows],
                eval_set=(x[rest], y[rest]),
                early_stopping_rounds=self.patience,
            )
            for depth in self.depths
        ]
        best = min(trials, key=lambda trial: trial.best_score_["validation"][LOSS])
        chosen = {"iterations": best.tree_count_, "depth": best.get_all_params()["depth"]}
        model = regressor(**chosen, **options).fit(x, y)

        def predict(x_new: Rows) -> Any:
            mean, variance = model.predict(x_new, thread_count=machine.threads).T
            if model.tree_count_ >= FEWEST_TREES * self.virtual_ensembles:
                _, between, of_label = model.virtual_ensembles_predict(
                    x_new,
                    prediction_type="TotalUncertainty",
                    virtual_ensembles_count=self.virtual_ensembles,
                    thread_count=machine.threads,
                ).T
                variance = between + of_label
            return prediction(gaussian(mean, np.sqrt(variance)))

        return predict
