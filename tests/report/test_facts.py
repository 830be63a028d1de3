"""The report says what applies to a fit, in the units of the data, and nothing else."""

import numpy as np
import pandas as pd
import pytest

from gpn.report.facts import facts_of
from gpn.tables.model import TableModel, fit_table

pytestmark = pytest.mark.filterwarnings("ignore:a fit should see unlabeled rows")


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "day": pd.date_range("2024-01-01", periods=90).strftime("%d.%m.%Y"),
            "clock": [f"{h:02}:{m:02}" for h, m in rng.integers(0, 24, (90, 2))],
            "size": rng.normal(5, 1, 90),
            "kind": rng.choice(["a", "b"], 90),
            "cost": rng.normal(400, 30, 90),
        }
    )


def test_a_closed_form_has_no_settings_of_a_network(table: pd.DataFrame) -> None:
    table = table.assign(cost=table["cost"] + 50 * np.sin(2 * table["size"]))
    model = fit_table(table, "cost", mean=None, random_state=0)
    facts = facts_of(model)
    assert facts["checks"] == []
    assert len(facts_of(model, every_check=True)["checks"]) == 5
    words = " ".join(name for name, _ in facts["settings"])
    for setting in ("pairing", "n_anchors", "jitter", "noise_std", "codes"):
        assert setting not in words
    settings = dict(facts["settings"])
    assert {f"scale of {name}, in its standard deviations" for name in model.encoder.names} <= set(
        settings
    )
    assert "size of what is not straight, in units of cost" in settings
    lines = dict(facts["lines"])
    noise = lines["noise of labels (standard deviation)"]
    assert noise.endswith(", in units of cost")
    assert 5 < float(noise.partition(",")[0]) < 90
    assert lines["columns"] == "1 of dates, 1 of times of day, 1 of numbers, 1 of categories"


def test_classes_have_a_temperature(table: pd.DataFrame) -> None:
    table = table.assign(kind=np.where(table["size"] > 5, "large", "small"))
    model = fit_table(table, "kind", mean=None, random_state=0)
    settings = dict(facts_of(model)["settings"])
    assert "temperature" in settings
    assert not any("units of" in name for name in settings)


def test_a_network_keeps_its_settings_and_what_it_found(regression_model: TableModel) -> None:
    facts = facts_of(regression_model)
    settings = dict(facts["settings"])
    assert settings["n_axes"] == "20"
    assert settings["noise_std"].endswith("yield <i>")
    assert "codes" in [name for name, _, _ in facts["checks"]]
    assert not any(verdict == "not known" for _, verdict, _ in facts["checks"])
