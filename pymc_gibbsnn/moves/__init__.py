"""Closed-form conditionals of the noisy network, one a file, as PyTensor graphs.

Notation, as in the papers: layer l has input A (n, d), weights W̃ = [W, b] (c, d (+ 1)) and output Z (n, c); Ã = [A, 1].
Every Δ is a variance. Each function takes a random generator first and returns the next one first.
"""
