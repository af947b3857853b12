"""`fedbo demo`: sites on this machine tune their own black boxes through a hub, and alone."""
