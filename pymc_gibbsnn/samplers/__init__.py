"""Transitions as PyTensor graphs: one algorithm a file."""
