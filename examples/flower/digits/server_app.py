"""The ServerApp: rounds of trials and messages, and a picture at the end."""

from __future__ import annotations

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from digits.picture import draw
from digits.task import FEDERATION
from fedbo.flower import Rounds
from fedbo.flower.folders import run_folder

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the federation, and draw what each site reached."""
    Rounds(federation=FEDERATION).run(grid, context)
    path = draw(run_folder(FEDERATION, context))
    print(f"The picture is in {path}")
