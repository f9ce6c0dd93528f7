"""Samplers, each written once as a transition, a PyTensor graph of one step; there is one algorithm in each file."""
