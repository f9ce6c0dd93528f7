"""Networks as samplers see them (layers, activations, likelihoods, data), and the readers that find them in a model."""
