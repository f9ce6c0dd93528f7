"""The moves of the Gibbs sweep over a noisy network, one in each file, as PyTensor graphs.

Notation, close to that of the papers. There are n samples. A layer has the input A (n, d), or Ã = [A, 1] where it has a
bias; the weights W̃ = [W, b] (h, d), whose rows belong to its h units and whose d columns to its inputs, bias included;
the prior precisions Λ of these weights; and the output Z = Ã W̃ᵀ + noise (n, h), its pre-activations. Its
post-activations A' = σ(Z) + noise (n, h), written A where no other A is near, are the input of the layer above. That
layer has c units, the weights W (c, h), and the output Y (n, c), here less its bias and offset. Every Δ is a variance,
every τ a precision. In code, ``w`` is W̃ of the layer, ``v`` is W of the layer above, and ``g`` is its gain G = S⁻¹ W,
where S is the covariance of Y given Z.

Every function that draws takes the variable of a random generator first, and returns that of the next one first.
"""
