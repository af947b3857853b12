"""The problems that agents tune, by name: a space, and an objective for each agent."""
