"""Parameters and the unit cube: a space, a part of it, and the axis of each parameter."""

from fedbo.space.lattice import Lattice
from fedbo.space.parameter import Categorical, Float, Int, Parameter
from fedbo.space.space import Direction, Part, Space

__all__ = ["Categorical", "Direction", "Float", "Int", "Lattice", "Parameter", "Part", "Space"]
