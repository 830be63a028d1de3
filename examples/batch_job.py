"""A nightly batch job: score a file in chunks, and set OOD rows aside.

A saved model scores (synthetic) cold stores; late in the night thermometers change to °F. Rows that
are flagged as OOD go to a file, and too many of them give exit status 3. About ten seconds.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import typer
from matplotlib.figure import Figure

from gpn import GPNConfig, TrainConfig, load, plots
from gpn.tables.model import fit_table

SHORT = GPNConfig(train=TrainConfig(steps=500, label_batch=64, pool_batch=64))


def measured(n: int, rng: np.random.Generator) -> pd.DataFrame:
    store = rng.choice(["north", "south", "harbour"], n)
    doors, outside = rng.poisson(4, n), rng.normal(15, 6, n)
    energy = 8 + doors + 0.4 * outside + 3 * (store == "harbour") + rng.normal(0, 1, n)
    return pd.DataFrame({"store": store, "doors": doors, "outside": outside, "energy": energy})


def nightly(model_file: Path, table: Path, aside: Path) -> np.ndarray:
    """Score the table, write its OOD rows to `aside`, and return the flags of all rows."""
    model, flags = load(model_file), []
    for chunk in pd.read_csv(table, chunksize=1000):
        scored = chunk.join(model.predict(chunk))
        scored[scored.is_ood].to_csv(aside, mode="a", header=not flags, index=False)
        flags.append(scored.is_ood)
    return np.concatenate(flags)


def main(out: Path = Path("demo/batch_job.png"), too_many: float = 0.5) -> None:
    labeled, pool, night = (measured(n, np.random.default_rng(n)) for n in (300, 1000, 6000))
    night.loc[4500:, "outside"] = 32 + 1.8 * night.loc[4500:, "outside"]
    with TemporaryDirectory() as folder:
        model_file, table, aside = (Path(folder) / name for name in ("gpn", "csv", "aside"))
        fit_table(labeled, "energy", pool, config=SHORT, random_state=0).save(model_file)
        night.drop(columns="energy").to_csv(table, index=False)
        flags = nightly(model_file, table, aside)
        print(f"set aside: {len(pd.read_csv(aside))} of {len(night)} rows")
    axes = (figure := Figure(figsize=(9, 3.4), layout="constrained")).subplots()
    flagged = flags.reshape(60, 100).sum(1)
    axes.stairs(flagged, np.arange(0, 6001, 100), fill=True, color=plots.PALETTE["ours"])
    axes.axvline(4500, color=plots.PALETTE["orange"], linewidth=2)
    axes.set(title="Rows set aside; at the line thermometers change from °C to °F")
    axes.set(xlabel="row of the night's table", ylabel="flagged, of 100")
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=100)
    raise typer.Exit(3 if flags.mean() > too_many else 0)


if __name__ == "__main__":
    typer.run(main)
