"""The two drivers that run transitions: step methods inside ``pm.sample``, and ``pmg.sample``, one JAX program."""
