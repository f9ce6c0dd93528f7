import os

# Small matrices: threads of BLAS cost more than they do.
for library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")

import matplotlib  # noqa: E402

matplotlib.use("Agg")
