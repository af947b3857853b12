"""Local privacy as a Flower mod: a site that does not trust the server sends a randomised vote."""

from __future__ import annotations

from contextvars import ContextVar

from flwr.app import Context, Message
from flwr.clientapp.typing import ClientAppCallable, Mod

from fedbo.flower import wire
from fedbo.message import Message as FedboMessage

#: ε of local privacy while the mod is at work; None without it.
asked: ContextVar[float | None] = ContextVar("local_epsilon", default=None)


def local_votes(epsilon: float) -> Mod:
    """Return a Flower mod that lets nothing but a randomised vote leave the site.

    The federation must have a privacy plan. The agent's vote then depends on its first trials and a
    secret, never changes, and costs ε of local privacy once, however many rounds there are; see
    `fedbo.privacy.local`. The mod also looks at what leaves, and stops anything else.

    Args:
        epsilon: ε of local privacy, above 0.

    >>> from fedbo.flower import client_app
    >>> app = client_app("federation.toml", objective, mods=[local_votes(4.0)])  # doctest: +SKIP
    """
    if not 0.0 < epsilon < float("inf"):
        raise ValueError(f"epsilon is {epsilon}, expected a number above 0, not infinite")

    def mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        before = asked.set(epsilon)
        try:
            reply = call_next(message, context)
        finally:
            asked.reset(before)
        if reply.has_content():
            _check(wire.answer(reply.content).message, epsilon)
        return reply

    return mod


def _check(handed_out: bytes, epsilon: float) -> None:
    """Raise an error unless this is a vote that was randomised with this ε, or nothing."""
    if handed_out:
        given = FedboMessage.decode(handed_out).local_epsilon
        if given is None or given > epsilon:
            raise RuntimeError(
                f"nothing was sent: the message has local ε = {given}, expected {epsilon} or less; "
                "use the ClientApp of fedbo.flower.client_app"
            )
