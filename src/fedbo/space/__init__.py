"""Parameters and the unit cube: a space, a narrower part of it, one parameter's axis."""

from fedbo.space.space import Categorical, Direction, Float, Int, Parameter, Part, Space

__all__ = ["Categorical", "Direction", "Float", "Int", "Parameter", "Part", "Space"]
