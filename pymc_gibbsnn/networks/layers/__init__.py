"""The linear maps between the activations of a network, one kind a file: what each must answer, :class:`Dense` says."""
