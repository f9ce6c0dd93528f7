"""How a kernel is declared for NumPy, Numba and JAX; Numba kernels that run in threads; vectorised mathematics."""
