"""Random draws that no library has, as PyTensor RandomVariables with NumPy, Numba and JAX implementations."""
