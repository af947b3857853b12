"""Follow a page as a reader does: save its files, paste its commands into a shell, and compare.

A block that begins with a comment such as ``# tune.py`` is a file. A block ``sh`` is run. A block
``text`` is what the reader should see after it, where ``...`` stands for anything, and a number for
any number. Any other block is only read. Commands that end with ``&`` start a server at port 8765,
and Flower starts one at 39091; free ports are taken in their place.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from doctest import ELLIPSIS, NORMALIZE_WHITESPACE, Example, OutputChecker
from pathlib import Path

from contracts.liar import free_port

import fedbo

FLAGS = ELLIPSIS | NORMALIZE_WHITESPACE
END = "--- end of a block ---"
#: A number or a time; neither the hyphen before a token nor the colon before a key belongs to it.
NUMBER = r" *((?<!\w)[-−])?\d+([.,]\d+|:\d\d\b)*(e-\d+)?(\.(?!\.))?"
SOURCE = Path(fedbo.__file__).parents[1]


def script(text: str, port: int) -> tuple[str, list[str]]:
    """Return a page as a script, which prints END after each block, and what each should print."""
    wait = f"until (: < /dev/tcp/localhost/{port}) 2>/dev/null; do sleep 0.1; done\n"
    lines, wanted = "set -e\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n", []
    for language, code in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S):
        if named := re.match(r"# ([\w/-]+\.(?:py|toml))\n", code):
            lines += f"cat > {named[1]} <<'END OF FILE'\n{code}END OF FILE\n"
        elif language == "sh":
            lines += code + (wait if code.endswith("&\n") else "") + f"echo; echo {END}\n"
            wanted.append("...\n")
        elif language == "text":
            wanted[-1] = code
    return lines, wanted


def follow(page: Path, folder: Path, seconds: float = 300.0, **env: str) -> None:
    """Do all that a page says, in an empty folder that is also the user's home."""
    port, superlink = free_port(), str(free_port())
    text = page.read_text(encoding="utf-8").replace("8765", str(port)).replace("39091", superlink)
    lines, wanted = script(text, port)
    own = {"HOME": str(folder), "PYTHONPATH": str(SOURCE), "COLUMNS": "100"}
    own |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    own |= {"FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": superlink, "FLWR_DISABLE_UPDATE_CHECK": "1"}
    own |= {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    kept = {name: value for name, value in os.environ.items() if name != "FEDBO_STATE"}
    with subprocess.Popen(
        ["bash", "-c", lines],
        cwd=folder,
        env=kept | own | env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        text=True,
        encoding="utf-8",
    ) as shell:
        try:
            said, _ = shell.communicate(timeout=seconds)
        finally:
            if shell.poll() is None:
                os.killpg(shell.pid, signal.SIGKILL)
            listener = f"lsof -t -i tcp:{superlink} -s tcp:listen"  # if its page could not end it
            subprocess.run(f"kill $({listener})", shell=True, stderr=subprocess.DEVNULL)
    assert shell.returncode == 0, said
    said = re.sub(r"\x1b\[\d*m", "", said)  # colours
    for want, got in zip(wanted, said.split(f"{END}\n"), strict=False):
        want, got = (re.sub(NUMBER, " 0", text) for text in (want, got))
        if not OutputChecker().check_output(want, got, FLAGS):
            raise AssertionError(OutputChecker().output_difference(Example("", want), got, FLAGS))
