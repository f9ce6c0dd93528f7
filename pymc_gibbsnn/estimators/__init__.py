"""Noisy networks as estimators of scikit-learn."""
