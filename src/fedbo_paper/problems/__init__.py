"""Problems that agents tune: a search space, and an objective for each agent."""
