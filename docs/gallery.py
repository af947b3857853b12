"""Render the gallery: run the programs in examples/, and write pages with output and pictures.

    python docs/gallery.py [--quick] [--out FOLDER] [NAME ...]

A program is a plain Python file. Its docstring is the title of its page and the first text. A line
`# %%` begins a cell: the comment right below it is Markdown, and the code below that is run. What
it prints and the figures that it draws come next on the page. In quick mode a line such as
`SEEDS = range(20)  # quick: range(2)` assigns the value in its comment. A page that is newer than
its program is kept.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import json
import multiprocessing
import os
import re
import shutil
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import matplotlib.pyplot as plt
from cycler import cycler

from fedbo.insight.colours import COLOURS

SOURCES = Path(__file__).parents[1] / "examples"
#: All programs, in the order of the gallery.
EXAMPLES = (
    "ask_and_tell",
    "folder",
    "hub",
    "fleet",
    "optuna_boosting",
    "warm_start",
    "constraints",
    "own_parameters",
    "private_release",
    "own_policy",
)
NOTEBOOK = "ask_and_tell"  # is a notebook, too
STYLE = {
    "figure.figsize": (7, 3.6),
    "figure.constrained_layout.use": True,
    "font.size": 12,
    "lines.linewidth": 2.5,
    "savefig.dpi": 144,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "axes.prop_cycle": cycler(color=COLOURS),
}
INDEX = """# Examples

Small complete programs with real data, which come with scikit-learn. A page shows a program, what
it printed, and what it drew. To run one yourself, in a checkout:

```
pip install '.[optuna,hub,flower,privacy,experiments]'
python examples/ask_and_tell.py
```

"""


class Cell(NamedTuple):
    """Markdown, and the code below it from a line of the file on; either may be empty."""

    text: str
    code: str
    line: int = 0


class Program(NamedTuple):
    """What is in the file of a program."""

    name: str
    title: str
    cells: list[Cell]


def read(name: str, is_quick: bool = False) -> Program:
    """Read a program; without its comments on quick values, or with these values."""
    source = (SOURCES / f"{name}.py").read_text(encoding="utf-8")
    kept = r"\1\3" if is_quick else r"\1\2"
    source = re.sub(r"^( *\w+ = )(.*)  # quick: (.*)$", kept, source, flags=re.M)
    docstring = ast.parse(source).body[0]
    title, _, text = ast.get_docstring(ast.parse(source)).partition("\n\n")
    cells = [Cell(text, "")]
    line = docstring.end_lineno
    for part in re.split(r"^# %%\n", "".join(source.splitlines(True)[line:]), flags=re.M):
        comment = re.match(r"(?:#.*\n)*", part)[0]
        text = re.sub(r"^# ?", "", comment, flags=re.M).strip()
        blank, code = re.match(r"(\n*)(.*)", part[len(comment) :], re.S).groups()
        cells.append(Cell(text, code.rstrip(), line + (comment + blank).count("\n")))
        line += part.count("\n") + 1
    return Program(name, title.removesuffix("."), cells)


def render(name: str, out: Path, is_quick: bool) -> str:
    """Run a program, write its page and its pictures, and return its card for the index."""
    plt.switch_backend("agg")
    plt.rcParams |= STYLE
    plt.show = lambda: None  # figures are saved below
    program, began = read(name, is_quick), time.process_time()
    main = sys.modules["__main__"] = ModuleType("__main__", program.title)
    main.__file__ = str(SOURCES / f"{name}.py")
    page, pictures = [f"# {program.title}"], []
    for cell in program.cells:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            code = "\n" * cell.line + cell.code  # so that errors name the right line
            exec(compile(code, main.__file__, "exec", dont_inherit=True), vars(main))
        page += [cell.text, f"```python\n{cell.code}\n```" if cell.code else ""]
        page += [f"```text\n{output}\n```" if (output := printed.getvalue().rstrip()) else ""]
        for number in plt.get_fignums():
            pictures.append(f"{name}-{len(pictures) + 1}.png")
            plt.figure(number).savefig(out / pictures[-1])
            page.append(f"![{program.title}]({pictures[-1]})")
        plt.close("all")
    page.append(f"[Download this program]({name}.py)")
    shutil.copy(main.__file__, out)
    if name == NOTEBOOK:
        (out / f"{name}.ipynb").write_text(notebook(program), encoding="utf-8")
        page[-1] += f", or [as a notebook]({name}.ipynb)"
    text = "\n\n".join(filter(None, page)) + ".\n"
    (out / f"{name}.md").write_text(text, encoding="utf-8")
    print(f"{name}: {time.process_time() - began:.0f} s", flush=True)


def is_done(name: str, out: Path) -> bool:
    """Say whether the page of a program is there, and newer than the program."""
    page = out / f"{name}.md"
    return page.exists() and page.stat().st_mtime > (SOURCES / f"{name}.py").stat().st_mtime


def index() -> str:
    """Return the page of the gallery: a card for each program, with its first picture."""
    cards = []
    for name in EXAMPLES:
        program = read(name)
        summary = program.cells[0].text.partition("\n\n")[0].replace("\n", " ")
        cards.append(
            f"-   [![{program.title}]({name}-1.png)]({name}.md)\n\n"
            f"    [**{program.title}**]({name}.md)\n\n    {summary}\n"
        )
    return f'{INDEX}<div class="grid cards" markdown>\n\n' + "\n".join(cards) + "\n</div>\n"


def notebook(program: Program) -> str:
    """Return a program as a Jupyter notebook without output."""
    cells = [("markdown", f"# {program.title}")]
    for cell in program.cells:
        cells += [("markdown", cell.text), ("code", cell.code)]
    outputs = {"markdown": {}, "code": {"execution_count": None, "outputs": []}}
    content = [
        {"id": f"cell-{i}", "cell_type": kind, "metadata": {}, "source": source, **outputs[kind]}
        for i, (kind, source) in enumerate(cells)
        if source
    ]
    kernel = {"name": "python3", "display_name": "Python 3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    whole = {"nbformat": 4, "nbformat_minor": 5, "metadata": metadata, "cells": content}
    return json.dumps(whole, indent=1, ensure_ascii=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="programs (default: all)")
    parser.add_argument("--quick", action="store_true", help="fewer trials: no figures for readers")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "examples")
    options = parser.parse_args()
    out = options.out.resolve()
    due = options.names or [name for name in EXAMPLES if not is_done(name, out)]
    out.mkdir(parents=True, exist_ok=True)
    # Each program has a process, and all have a folder of fedbo's own state that is not the user's.
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as state:
        os.environ |= {"FEDBO_STATE": state, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        with ProcessPoolExecutor(mp_context=spawn, max_tasks_per_child=1) as pool:
            list(pool.map(partial(render, out=out, is_quick=options.quick), due))
    (out / "index.md").write_text(index(), encoding="utf-8")


if __name__ == "__main__":
    main()
