"""Functions that write plain PyMC models of networks, give chains consistent starting values, and generate data."""
