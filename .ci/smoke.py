"""A network is written, sampled and used to predict: what an installed package must do without its source tree."""

from pathlib import Path

import numpy as np
import pymc as pm

import pymc_gibbsnn as pmg

X = np.random.default_rng(0).normal(size=(20, 2))
with pmg.mlp(X, X[:, 0] ** 2, 3, noise=0.1, prior=None) as model:
    step = pmg.GibbsNN(interweave=False, scale_move=False)
    idata = pm.sample(10, tune=10, chains=1, step=step, var_names=["W1", "b1", "W2", "b2"], progressbar=False)
assert np.isfinite(pmg.predict(idata, model, X[:3])["mean"]).all()
assert Path(pmg.__file__).parent.parent != Path(__file__).parent.parent, "the source tree was imported"
print(f"pymc_gibbsnn {pmg.__version__} samples and predicts.")
