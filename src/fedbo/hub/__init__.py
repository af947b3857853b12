"""The hub: a service that keeps the latest message of each agent and hands them out."""
