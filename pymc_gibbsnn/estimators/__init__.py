"""Noisy networks as estimators of scikit-learn."""

try:
    from sklearn.utils.validation import validate_data  # noqa: F401  (new in 1.6)
except ImportError as error:
    raise ImportError(
        "pymc_gibbsnn.NetworkRegressor and NetworkClassifier need scikit-learn 1.6 or later: "
        "pip install 'pymc-gibbsnn[sklearn]'."
    ) from error
