"""A budget: what may be released of a federation's members, and what was.

The plan, which is how many releases there will be and what they cost together, is fixed before the
first one. The noise of each follows from it. So the cost of all of them can be added up although
later releases see other data, and nobody can spend more by looking at what was released.

A release is recorded, and its record is on the disk, before its noise is drawn. If the process is
killed in between, the budget shows a release that never left, and never less than was released.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from fedbo import files
from fedbo.federation import Federation
from fedbo.files import FileRefused
from fedbo.locks import alone
from fedbo.message import Fingerprint
from fedbo.message.release import NEIGHBOURS, Release
from fedbo.privacy.accounting import Gaussian, Laplace, epsilon
from fedbo.privacy.contribution import Contribution
from fedbo.privacy.noise import SECRET
from fedbo.privacy.release import Plan, composed, mechanisms, noisy

_LARGEST = 2**24  # bytes of the file


class BudgetSpent(ValueError):
    """A release would break the budget; the text says which, and what was released."""


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A release that was made, or may have been.

    Args:
        when: The time in UTC, in the format of ISO 8601.
        sequence: The number of the release, from 1.
        members: The number of members.
        votes: What the votes cost.
        sums: What the sums cost.
    """

    when: str
    sequence: int
    members: int
    votes: Laplace
    sums: Gaussian


class _File(msgspec.Struct, forbid_unknown_fields=True):
    """What the file holds."""

    federation: str
    plan: Plan
    entries: list[Entry] = []
    version: int = 1


class Budget:
    """The releases of one federation, in a file that belongs to the trusted party.

    Args:
        path: The file; it is created if it does not exist.
        federation: What the members agree on.
        plan: What all releases may cost together. If the file exists, it must be the same plan, or
            None (default).

    >>> import tempfile
    >>> from fedbo.space import Float
    >>> agreed = Federation({"x": Float(0, 1)})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     budget = Budget(f"{folder}/budget.json", agreed, Plan(epsilon=2.0, delta=1e-3))
    ...     published = budget.release([None] * 30, trials=900)
    ...     print(budget)
    1 of 1 release was made. By now this cost each member ε = 1.914 at δ = 0.001...
    """

    def __init__(
        self, path: str | os.PathLike[str], federation: Federation, plan: Plan | None = None
    ) -> None:
        self.path, self.federation = Path(os.path.abspath(path)), federation
        with self._locked():
            if self.path.exists():
                found = self._read()
                if plan is not None and plan != found.plan:
                    raise ValueError(
                        f"plan is {plan}, but {self.path} was created with {found.plan}: a plan "
                        "cannot be changed once it was made. Leave it out, or use another file "
                        "if the members agree to spend more"
                    )
            elif plan is None:
                raise FileNotFoundError(
                    f"{self.path} does not exist: give the plan to create it, such as "
                    "Plan(epsilon=2.0, delta=1e-3, releases=1)"
                )
            else:
                self._write(_File(str(Fingerprint(federation.fingerprint)), plan))

    def __str__(self) -> str:
        held = self._read()
        made, planned = len(held.entries), held.plan.releases
        were = "releases were" if planned > 1 else "release was"
        return (
            f"{made} of {planned} {were} made. By now this cost each member ε = {self.spent():.3f} "
            f"at δ = {held.plan.delta:g}, of at most ε = {held.plan.epsilon:g} for all. Protected "
            "is a member's whole contribution: the releases would be about as likely if "
            f"{NEIGHBOURS}. Who is a member, how many there are, and how many trials they made is "
            "not protected."
        )

    @property
    def plan(self) -> Plan:
        """What all releases may cost together."""
        return self._read().plan

    @property
    def entries(self) -> list[Entry]:
        """The releases so far, oldest first."""
        return self._read().entries

    def spent(self) -> float:
        """Return ε of all releases so far, at the δ of the plan."""
        held = self._read()
        mechanisms = [each for entry in held.entries for each in (entry.votes, entry.sums)]
        return epsilon(mechanisms, held.plan.delta) if mechanisms else 0.0

    def release(
        self,
        contributions: Sequence[Contribution | None],
        *,
        trials: int,
        sender: str = "release",
    ) -> Release:
        """Record the next release, then make it.

        Args:
            contributions: The contribution of each member; None for a member that has none.
            trials: The number of trials of all members together, which is public.
            sender: The name of the trusted party (default "release").

        Raises:
            BudgetSpent: If all planned releases were made.
            ValueError: If a contribution is not valid. Then nothing is spent.
        """
        with self._locked():
            held = self._read()
            sequence = len(held.entries) + 1
            if sequence > held.plan.releases:
                raise BudgetSpent(f"no further release can be made from {self.path}: {self}")
            quiet = composed(self.federation, contributions, held.plan, trials, sender, sequence)
            votes, sums = mechanisms(quiet)
            now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
            held.entries.append(Entry(now, sequence, len(contributions), votes, sums))
            self._write(held)
        return noisy(quiet, SECRET)

    def _locked(self) -> _Locked:
        return _Locked(self.path.parent)

    def _read(self) -> _File:
        try:
            found = msgspec.json.decode(files.read(self.path, _LARGEST), type=_File)
        except (FileRefused, ValueError) as error:
            raise FileRefused(
                f"{self.path} is no budget that fedbo wrote: {error}. Without it nobody knows what "
                "was released: restore it from a copy, and add what was released since"
            ) from None
        if found.version != 1:
            raise FileRefused(
                f"{self.path} has version {found.version}, and this fedbo reads version 1: use a "
                "newer one"
            )
        here = str(Fingerprint(self.federation.fingerprint))
        if found.federation != here:
            raise FileRefused(
                f"{self.path} is the budget of the federation {found.federation}, expected {here}"
            )
        return found

    def _write(self, held: _File) -> None:
        files.write(self.path, msgspec.json.format(msgspec.json.encode(held)) + b"\n", 0o600)


class _Locked:
    """Keeps other processes from the folder; without a lock, nothing is released."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._lock = folder, alone(folder)

    def __enter__(self) -> None:
        if not self._folder.is_dir():
            raise FileNotFoundError(f"there is no folder {self._folder}: make it first")
        if not self._lock.__enter__():
            self._lock.__exit__(None, None, None)
            raise OSError(
                f"the folder {self._folder} cannot be locked, so that two processes could spend "
                "the same budget: keep the file on a local disk, and not on Windows, which has no "
                "such locks"
            )

    def __exit__(self, *_: object) -> None:
        self._lock.__exit__(None, None, None)
