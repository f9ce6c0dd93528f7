"""How a kernel is declared for NumPy, Numba and JAX; threads; vector maths."""
