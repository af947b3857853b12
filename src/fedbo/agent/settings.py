"""An agent's settings beside its policy: the default, and those of the paper's experiments."""

from __future__ import annotations

from typing import Literal

import msgspec

from fedbo.model.fit import Fit
from fedbo.model.scores import Raw, Scores, Standardised
from fedbo.model.surrogate import SurrogateSettings

_CHOICES = {
    "design": ("sobol", "random"),
    "maximiser": ("refine", "direct"),
    "repeats": ("avoid", "allow", "random"),
}


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How an agent starts, models its objective and maximises what is drawn.

    ``n_initial`` points of a ``design`` come first. ``standardise`` centres and scales scores,
    and compresses low ones, before anything is fitted to them or handed out. ``maximiser`` is
    ``"refine"`` (screen, then climb) or ``"direct"``. ``repeats`` says what happens to a query at
    exactly the place of an earlier one: with ``"avoid"`` a listed point is not tried again until
    all were, which is right where scores have little noise; with ``"allow"`` it is made again, with
    ``"random"`` replaced by a random one. ``tell_initial`` says whether the agent's messages draw
    on its initial points.

    >>> PAPER.maximiser, PAPER.surrogate.draw_features
    ('direct', 200)
    """

    n_initial: int = 3
    design: Literal["sobol", "random"] = "sobol"
    surrogate: SurrogateSettings = SurrogateSettings()
    standardise: bool = True
    maximiser: Literal["refine", "direct"] = "refine"
    repeats: Literal["avoid", "allow", "random"] = "avoid"
    tell_initial: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.n_initial, int) or self.n_initial < 0:
            raise ValueError(f"n_initial is {self.n_initial!r}, expected an int of 0 or more")
        for name, known in _CHOICES.items():
            if getattr(self, name) not in known:
                choices = " or ".join(map(repr, known))
                raise ValueError(f"{name} is {getattr(self, name)!r}, expected {choices}")

    @property
    def scores(self) -> type[Scores]:
        """The transformation of scores."""
        return Standardised if self.standardise else Raw


#: The settings of the paper's real-world experiments (appendix D, and its authors' code): an
#: isotropic SE kernel by plain maximum likelihood from 10 starts every 5 queries, no noise floor to
#: speak of, f_t from 200 fresh features, DIRECT, raw scores, messages from the 50 queried points.
PAPER = Settings(
    design="random",
    surrogate=SurrogateSettings(
        fit=Fit(kernel="se", ard=False, priors=None, noise_floor=1e-10, starts=10),
        refit_every=5,
        draw_features=200,
    ),
    standardise=False,
    maximiser="direct",
    repeats="random",
    tell_initial=False,
)
