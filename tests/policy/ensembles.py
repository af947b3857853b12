"""The small world of the tests of RGPE and TAF: a target with peers whose beliefs are known."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fedbo.federation import Federation
from fedbo.federation.shared import Shared
from fedbo.message import Fingerprint, Message
from fedbo.message.inbox import BeliefInbox
from fedbo.message.inbox import held as as_held
from fedbo.model.argmax import SampledFunction
from fedbo.model.features import Features
from fedbo.model.fit import Fit
from fedbo.model.linear import Regression
from fedbo.model.surrogate import Standardised, Surrogate, SurrogateSettings
from fedbo.policy import Target
from fedbo.policy.peers import Peers
from fedbo.space import Float, Space

NOISE = 0.1
Function = Callable[[np.ndarray], np.ndarray]


def space(D: int) -> Space:
    return Space({f"x{i}": Float(0, 1) for i in range(D)})


def message(
    features: Features,
    X: np.ndarray,
    y: np.ndarray,
    sender: str,
    *,
    sequence: int = 1,
) -> Message:
    """The belief of a peer with these observations."""
    regression = Regression(features, NOISE)
    regression.add(X)
    posterior = regression.posterior(Standardised(y).z)
    return Message.of_belief(
        posterior.nu,
        posterior.covariance(),
        float(Standardised(y).z.max()),
        fingerprint=Fingerprint(bytes(16)),
        sender=sender,
        sequence=sequence,
        t_n=len(X),
    )


def inbox(
    features: Features, functions: Sequence[Function], t_n: int, seed: int = 0
) -> BeliefInbox:
    """Peers that observed one function each, at t_n points or a few less."""
    rng = np.random.default_rng(seed)
    held = BeliefInbox(features.M, entropy=seed)
    for i, f in enumerate(functions):
        X = rng.random((max(1, t_n - i % 4), len(features.length_scales)))
        held.hold(as_held(message(features, X, f(X), f"peer-{i}")))
    return held


def target(
    features: Features,
    held: BeliefInbox,
    f: Function,
    n: int,
    *,
    seed: int = 0,
    exact_limit: int = 1000,
) -> Target:
    """A target that observed f at n points."""
    D = len(features.length_scales)
    rng = np.random.default_rng([seed, 1])
    X = rng.random((n, D))
    settings = SurrogateSettings(fit=Fit(starts=1), exact_limit=exact_limit)
    agreed = Federation(space(D), features=features.M, kind="belief")
    Shared.of(agreed).phi = features
    return Target(
        t=n,
        space=space(D),
        X=X,
        y=Standardised(f(X) + 0.05 * rng.standard_normal(n)).z,
        open_points=np.empty((0, D)),
        surrogate=Surrogate(settings, D),
        inbox=held,
        federation=agreed,
        rng=np.random.default_rng([seed, 2]),
    )


def problem(seed: int, *, N: int = 4, n: int = 9, D: int = 2, M: int = 25) -> Target:
    """A random problem: some peers are alike, some have nothing to do with the target."""
    rng = np.random.default_rng([seed, 3])
    features = Features(D, M, length_scales=0.4, seed=seed)
    base = rng.standard_normal(M)
    functions = [
        features.function((i % 3 < 2) * base + rng.standard_normal(M) * (0.3 + 0.7 * (i % 3)))
        for i in range(N)
    ]
    held = inbox(features, functions, t_n=12, seed=seed)
    return target(features, held, features.function(base), n, seed=seed)


def peers_of(target: Target) -> Peers:
    """The peers of a target, as the default policy sees them."""
    return Peers(target.federation, target.inbox, target.X, target.y)


def slopes(function: SampledFunction, X: np.ndarray, step: float = 1e-6) -> np.ndarray:
    """Gradients at the rows of X by central differences."""
    columns = []
    for e in np.eye(X.shape[1]) * step:
        columns.append((function(X + e) - function(X - e)) / (2 * step))
    return np.stack(columns, axis=1)
