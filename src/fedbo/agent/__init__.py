"""The agent: ask, tell, receive, message, save and load."""

from fedbo.agent.agent import Agent
from fedbo.agent.settings import Settings
from fedbo.agent.trial import Trial

__all__ = ["Agent", "Settings", "Trial"]
