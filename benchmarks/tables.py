"""Run the benchmarks one after another, and so make the tables of the documentation again.

``--quick`` runs a small form of those that have one: it shows that they run and what they print, and its numbers are
rough. The full runs take long; ``--only`` names some of them. Results are kept as JSON, those of ``--quick`` in a
folder of their own, beside a file that names the machine and the versions. Benchmarks on data sets that the package
does not bring are left out unless PYMC_GIBBSNN_DATA names their folder. Run::

    python benchmarks/tables.py --quick [--only sweep mixing ...]
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

from common import RESULTS

HERE = Path(__file__).parent
DATA = os.environ.get("PYMC_GIBBSNN_DATA")
# A script, what is added to it by --quick, and what is added otherwise; None if there is no such form.
TABLES: dict[str, tuple[str, str | None, str | None]] = {
    "sweep": ("gibbs_sweep.py", "--quick", ""),
    "mixing": ("gibbs_mixing.py --part equilibrium", "--teachers 0-0 --problem n=200 --sweeps 4000", ""),
    "convolutions": ("image_mixing.py", "--teachers 1 --sweeps 2000", ""),
    "zero": ("gibbs_mixing.py --part zero", None, ""),
    "noise": ("small_noise.py", None, ""),
    "momentum": ("kept_momentum.py", None, ""),
    "thermalised": ("thermalised_fraction.py", "--part small --teachers 100-101", ""),
    "verdicts": ("thermalisation.py --part calibration", "--quick", ""),
    "paths": ("thermalisation.py --part figure", "--quick", ""),
    "dynamics": ("thermalisation_dynamics.py", "--quick", ""),
    "chains": ("jax_driver.py", "--quick", ""),
    "xor": ("fnbg.py xor", "--quick", ""),
    "toy": ("stochastic_gradients.py --part toy", None, ""),
    "storing": ("long_runs.py", "--seconds 20 --every 5", ""),
    "processes": ("processes.py", "--rows 2084 --draws 20", ""),
    "compiling": ("compile_times.py", None, ""),
}
ON_DATA: dict[str, tuple[str, str | None, str | None]] = {
    "uci": (f"uci.py {DATA}", "--sets yacht --splits 1 --methods 'GibbsNN, noise by row' ridge boosting", ""),
    "mnist": (f"mnist.py {DATA}/mnist.npz", "--sweeps 50", ""),
    "images": ("fnbg.py images", None, "--quick"),
    "wide": ("wide_networks.py --part figures", None, "--quick"),
}


if DATA and not (Path(DATA) / "cifar10_subset.npz").exists():
    del ON_DATA["wide"]


def main(quick: bool, only: list[str] | None) -> None:
    """Run what was asked for, each in a process of its own with one thread, and say at the end what failed."""
    failed = []
    for name, (script, short, long) in (TABLES | (ON_DATA if DATA else {})).items():
        form = short if quick else long
        if (only and name not in only) or form is None:
            continue
        file, *arguments = shlex.split(f"{script} {form}")
        output = (RESULTS / "quick" if quick else RESULTS) / Path(file).with_suffix(".json").name
        print(f"\n{name}: python benchmarks/{file} {' '.join(arguments)}", flush=True)
        start = time.perf_counter()
        threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        command = [sys.executable, str(HERE / file), *arguments, "--output", str(output)]
        failed += [name] * (subprocess.run(command, env=os.environ | threads).returncode != 0)
        print(f"{name}: {time.perf_counter() - start:.0f} seconds", flush=True)
    if failed:
        raise SystemExit(f"Failed: {', '.join(failed)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a small form of each")
    parser.add_argument("--only", nargs="+", choices=[*TABLES, *ON_DATA], help="some of them, by name")
    main(**vars(parser.parse_args()))
