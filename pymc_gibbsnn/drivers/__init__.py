"""What runs a transition: PyMC's loop, step by step, or one JAX program."""
