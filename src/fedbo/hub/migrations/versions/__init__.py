"""One file for each revision; what was released never changes."""
