"""What is learnt from a run: whether chains have thermalised, the network's function, predictions and their scores."""
