"""``fedbo demo``: a whole federation on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedbo.cli import checks
from fedbo_paper.cli.reproduce import PACKAGES


def demo(
    agents: Annotated[int, typer.Option(help="Number of sites, 2 to 24.")] = 10,
    trials: Annotated[
        int, typer.Option(help="Trials of each site, including its initial points.")
    ] = 20,
    repeats: Annotated[int, typer.Option(help="How often everything is repeated.")] = 20,
    seed: Annotated[
        int, typer.Option(help="Random seed: the same seed gives the same result.")
    ] = 0,
    out: Annotated[Path, typer.Option(help="The picture to write: .png, .pdf or .svg.")] = Path(
        "fedbo-demo.png"
    ),
    stay: Annotated[
        bool, typer.Option("--stay", help="Keep the hub and its page running until Ctrl-C.")
    ] = False,
) -> None:
    """Run a hub and its members on this machine, and compare them alone and together."""
    checks.require("experiments", PACKAGES)
    checks.require("hub", {"fastapi": "fastapi", "sqlalchemy": "sqlalchemy", "httpx2": "httpx2"})
    checks.writable("--out", out, checks.PICTURES)
    import contextlib
    import signal
    import tempfile
    import threading
    from functools import partial

    from rich.console import Console
    from rich.text import Text

    from fedbo.cli.screen import say
    from fedbo.errors import ExchangeError
    from fedbo_paper.demo import figure, hub, screen
    from fedbo_paper.demo.demo import Demo
    from fedbo_paper.demo.outcome import Outcome
    from fedbo_paper.demo.site import Repeat, play
    from fedbo_paper.harness import workers
    from fedbo_paper.harness.screen import bars

    try:
        wanted = Demo(agents=agents, trials=trials, repeats=repeats, seed=seed)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: it ends workers, too
    console, finished = Console(), list[Repeat]()
    with (
        tempfile.TemporaryDirectory(prefix="fedbo-", ignore_cleanup_errors=True) as temporary,
        hub.serving(wanted, Path(temporary)) as serving,
    ):
        say(screen.introduction(wanted))
        end = "until you press Ctrl-C" if stay else "until the demo ends; --stay keeps it"
        where = f"The hub's page: {serving.address} ({end})\nLog in with:    {serving.token}"
        console.print(Text(f"\n{where}\n"), soft_wrap=True)
        calls = [
            partial(play, wanted, repeat, serving.address, invitation, Path(temporary))
            for repeat, invitation in enumerate(serving.invitations)
        ]
        try:
            with bars(console) as progress:
                bar = progress.add_task("repeats", total=repeats)
                for _, repeat in workers.run(calls):
                    finished.append(repeat)
                    progress.advance(bar)
        except KeyboardInterrupt:
            workers.stop()
            say(f"Stopped after {len(finished)} of {repeats} repeats.")
        except (ExchangeError, OSError) as error:
            checks.end(f"The demo cannot go on: {error}")
        if finished:
            outcome = Outcome(wanted, finished)
            screen.report(console, outcome)
            figure.draw(outcome, out)
            say(f"The picture is in {out}.")
        if len(finished) < repeats:
            raise typer.Exit(checks.INTERRUPTED)
        if stay:
            with contextlib.suppress(KeyboardInterrupt):
                say("The hub's page stays until you press Ctrl-C.")
                threading.Event().wait()
