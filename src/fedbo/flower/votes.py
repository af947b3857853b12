"""Local privacy as a Flower mod: a site that does not trust the server sends a randomised vote."""

from __future__ import annotations

import math
from contextvars import ContextVar

from flwr.app import Context, Message
from flwr.clientapp.typing import ClientAppCallable, Mod

from fedbo.flower import wire
from fedbo.flower.site import log
from fedbo.message import Message as FedboMessage

#: ε of local privacy while the mod is at work; None without it.
local_epsilon: ContextVar[float | None] = ContextVar("local_epsilon", default=None)


class NothingSent(RuntimeError):
    """The mod stopped what would have left the node."""


def local_votes(epsilon: float) -> Mod:
    """Return a Flower mod that lets nothing but a randomised vote leave the site.

    The federation must have a privacy plan. The agent's vote then depends on its first trials and a
    secret, never changes, and costs ε of local privacy once, however many rounds there are; see
    `fedbo.privacy.local`. The mod looks at what leaves, and stops anything else. Of an error, the
    server only hears that there was one.

    Args:
        epsilon: ε of local privacy, above 0.

    >>> from fedbo.flower import client_app
    >>> app = client_app("federation.toml", objective, mods=[local_votes(4.0)])  # doctest: +SKIP
    """
    if not 0.0 < epsilon < math.inf:
        raise ValueError(f"epsilon is {epsilon}, expected a number above 0, not infinite")

    def mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        before = local_epsilon.set(epsilon)
        try:
            said = wire.answer(call_next(message, context).content)
        except Exception:
            log.exception("the node failed")
            raise NothingSent("the node failed; its own log says why") from None
        finally:
            local_epsilon.reset(before)
        if said.message and not _is_vote(FedboMessage.decode(said.message), epsilon):
            raise NothingSent(
                f"nothing was sent: the answer is not a vote with local ε = {epsilon}; use the "
                "ClientApp of fedbo.flower.client_app"
            )
        return Message(wire.packed(said), reply_to=message)

    return mod


def _is_vote(handed_out: FedboMessage, epsilon: float) -> bool:
    """Tell whether this is a vote that was randomised with this ε, and nothing else."""
    given = handed_out.local_epsilon
    return given is not None and given <= epsilon and not handed_out.y.any()
