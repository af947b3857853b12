"""All errors that fedbo raises on its own account.

::

    FedboError
    ├── FileRefused             a file is damaged, or is something else
    ├── FederationMismatch      two federations differ
    ├── MessageRefused          a message cannot be used
    │   └── NotTrusted          it is not its sender's (`fedbo.trust`)
    ├── KeyRefused              a key cannot be used
    ├── BudgetSpent             a release was not planned
    ├── StudyRefused            a study has nothing to publish, to withdraw or to explain
    ├── StorageRefused          a storage or a study cannot be opened
    ├── StateMissing            there is no folder for the user's files
    ├── ExchangeError           a place cannot be reached, or refuses something
    │   ├── NotSent             ... and nothing was sent
    │   ├── NotOurs             ... and the message is another's
    │   ├── HubRefused          ... and a hub says why
    │   └── StrangeAnswer       ... and what answers is no hub of fedbo
    └── HubError                a hub cannot work with its database or a file

An argument that cannot be used is a ValueError or a TypeError, as everywhere in Python.
"""

from __future__ import annotations


class FedboError(Exception):
    """The root of all of them."""


class FileRefused(FedboError, ValueError):
    """A file is not what it should be; the text says why. The file is left as it was."""


class FederationMismatch(FedboError, ValueError):
    """Two federations differ; the text names the first difference."""


class MessageRefused(FedboError, ValueError):
    """A message cannot be used; the text says which rule it breaks."""


class KeyRefused(FedboError, ValueError):
    """A key cannot be used; the text says why, and what to do."""


class BudgetSpent(FedboError, ValueError):
    """A release would break the privacy plan; the text says what was released."""


class StudyRefused(FedboError, ValueError):
    """A study has nothing to publish, to withdraw or to explain; the text says why."""


class StorageRefused(FedboError, ValueError):
    """A storage or a study cannot be opened."""


class StateMissing(FedboError, OSError):
    """There is no folder for the user's files; the text says what to do."""


class ExchangeError(FedboError, OSError):
    """A place cannot be reached; the text says what failed, why, and what to do."""


class NotSent(ExchangeError):
    """Nothing was sent, so that the place cannot have read anything."""


class NotOurs(ExchangeError):
    """The message that should be withdrawn is another's; the text says whose."""


class HubRefused(ExchangeError):
    """A hub has refused a request, and has done nothing; the text and the slug say why."""

    def __init__(self, text: str, slug: str = "") -> None:
        super().__init__(text)
        self.slug = slug


class StrangeAnswer(ExchangeError):
    """This is not the answer of a fedbo hub; the text says what is wrong with it."""


class HubError(FedboError, RuntimeError):
    """A hub cannot work with its database or a file; the text says why and what to do."""
