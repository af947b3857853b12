"""Parameters and the unit cube: a space, a part of it, its lattice, parameters and axes."""

from fedbo.space.axis import Categorical, Float, Int, Parameter
from fedbo.space.space import Direction, Lattice, Part, Space

__all__ = ["Categorical", "Direction", "Float", "Int", "Lattice", "Parameter", "Part", "Space"]
