"""An agent's beliefs: kernels, features, Gaussian processes, and how draws are maximised."""
