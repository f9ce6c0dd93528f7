"""The densities that Metropolis and Langevin samplers move: plain, whitened, and with the readout integrated out."""
