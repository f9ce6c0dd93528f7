"""A network once it is read: its layers, activations and data, and the reader that finds them in a PyMC model."""
