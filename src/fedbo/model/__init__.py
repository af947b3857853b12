"""What an agent believes: kernels, features, Gaussian processes, and maximising what is drawn."""
