"""Where chains of noisy networks begin: fits of the network without noise, and annealing where there is none."""
