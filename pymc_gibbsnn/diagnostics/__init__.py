"""What a run says: thermalisation, convergence, the network's function, predictions and their scores."""
