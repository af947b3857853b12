"""The steps, in the order of their numbers. A step that was released never changes."""
