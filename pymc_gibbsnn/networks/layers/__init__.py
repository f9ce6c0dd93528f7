"""The linear maps between the activations of a network; there is one kind in each file.

The docstring of :class:`~pymc_gibbsnn.networks.layers.dense.Dense` lists what a kind of layer must answer.
"""
