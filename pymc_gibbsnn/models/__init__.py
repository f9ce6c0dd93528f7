"""Plain PyMC models in one call, consistent starts for them, and generators of data."""
