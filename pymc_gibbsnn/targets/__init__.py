"""The densities on which Metropolis and Langevin samplers act: plain, whitened, and with the readout integrated out."""
