"""A smoke test of an installed gpn: `make release-check` runs it outside the repository."""

import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import numpy as np

import gpn


def main() -> None:
    assert gpn.__version__ == version("gpn")
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (40, 2))
    model = gpn.GPNRegressor(mean=None, random_state=0).fit(X, X[:, 0])
    assert model.is_ood([[0.0, 0.0], [50.0, 0.0]]).tolist() == [False, True]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gpn"
        model.save(path)
        assert np.array_equal(gpn.load(path).predict(X), model.predict(X))
    command = [str(Path(sys.executable).with_name("gpn")), "--help"]
    assert "predict" in subprocess.run(command, capture_output=True, text=True, check=True).stdout
    print(f"gpn {gpn.__version__}: fitted, saved, loaded, and its command runs")


if __name__ == "__main__":
    main()
