"""How large the house is: lines, levels of imports, and the modules that a trial crosses.

An Optuna study joins a hub on this machine, hears three peers, and runs trials. The modules of
fedbo in which a function is called during its last trial, on any thread, are counted on the side of
the study, and those that answer a publish on the side of the hub.
"""

from __future__ import annotations

import graphlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType

ROOT = Path(__file__).resolve().parents[1]
SPACE = """
C = { type = "float", low = 1e-4, high = 10.0, log = true }
k = { type = "int", low = 1, high = 9 }
"""
TRIALS = 12  # the last one is traced; by then the study's own model takes part
LAZY = ("fedbo.agent.agent", "fedbo.insight.explain")  # `Agent.explain` imports it when called


class Crossed:
    """The modules of fedbo in which functions are called, on any thread that starts later."""

    def __init__(self) -> None:
        self._codes: set[CodeType] = set()
        self._is_on = False
        threading.setprofile(self._count)
        sys.setprofile(self._count)

    def _count(self, frame: FrameType, event: str, _argument: object) -> None:
        if self._is_on and event == "call":
            self._codes.add(frame.f_code)

    @contextmanager
    def recording(self) -> Iterator[None]:
        self._codes.clear()
        self._is_on = True
        try:
            yield
        finally:
            self._is_on = False

    def modules(self) -> list[str]:
        """Return their names; a module that was only imported does not count."""
        source = str(ROOT / "src") + os.sep
        paths = {code.co_filename for code in self._codes if code.co_name != "<module>"}
        inside = (path.removeprefix(source) for path in paths if path.startswith(source))
        return sorted(path.removesuffix(".py").replace(os.sep, ".") for path in inside)


def lines(*folders: str) -> int:
    """Count the lines of the Python files in folders."""
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    return sum(len(path.read_text().splitlines()) for path in files)


def longest_chain() -> list[str]:
    """Return the longest chain of imports in fedbo, from the command line down."""
    import grimp

    graph = grimp.build_graph("fedbo")
    imports = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    imports[LAZY[0]] = imports[LAZY[0]] - {LAZY[1]}
    chains: dict[str, list[str]] = {}
    for name in graphlib.TopologicalSorter(imports).static_order():  # it refuses cycles
        below = max((chains[below] for below in imports[name]), key=len, default=[])
        chains[name] = [name, *below]
    return max(chains.values(), key=len)


def fedbo(*arguments: str) -> str:
    """Run a command, and return what it prints."""
    command = [sys.executable, "-m", "fedbo", *arguments]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    if ended.returncode:
        raise SystemExit(f"fedbo {' '.join(arguments)}: {ended.stderr}{ended.stdout}")
    return ended.stdout


def serve() -> None:
    """Serve a hub in this process, and print the modules that have answered each publish."""
    import uvicorn

    from fedbo.hub import app as hub_app

    crossed = Crossed()
    app = hub_app.from_environ()

    async def traced(scope, receive, send):  # type: ignore[no-untyped-def]
        if scope.get("method") != "PUT" or not scope["path"].endswith("/messages"):
            return await app(scope, receive, send)
        with crossed.recording():
            await app(scope, receive, send)
        print(json.dumps(crossed.modules()), flush=True)

    config = uvicorn.Config(traced, port=int(sys.argv[2]), log_config=None)
    uvicorn.Server(config).run()


def crossed_by_a_trial() -> tuple[list[str], list[str]]:
    """Return the modules that a trial crosses at a study, and a publish at the hub."""
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    address = f"http://127.0.0.1:{port}"
    (Path.cwd() / "space.toml").write_text(SPACE)
    fedbo("federation", "new", "federation.toml", "--from-space", "space.toml")
    created = fedbo("hub", "create", "here", "--federation", "federation.toml")
    invitation = next(word for word in created.split() if word.startswith("here."))
    command = [sys.executable, str(Path(__file__).resolve()), "serve", port]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as hub:
        try:
            wait_for(int(port))
            Path("invitation.txt").write_text(invitation)
            fedbo("join", address, "--invite", "invitation.txt", "--name", "here")
            modules = trial(address)
            hub.terminate()
            published = hub.stdout.read().splitlines() if hub.stdout else []
        finally:
            hub.kill()
    return modules, json.loads(published[-1])


def wait_for(port: int) -> None:
    """Wait until something listens at a port of this machine."""
    import socket
    import time

    for _ in range(300):
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise SystemExit(f"nothing listens at port {port} after 30 seconds")


def trial(address: str) -> list[str]:
    """Run peers and a study through a hub; return the modules that the last trial crosses."""
    import optuna

    from fedbo.optuna import FederatedSampler

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    crossed = Crossed()

    def objective(trial: optuna.Trial) -> float:
        C, k = trial.suggest_float("C", 1e-4, 10, log=True), trial.suggest_int("k", 1, 9)
        return -((C - 1) ** 2) - (k - trial.number % 3) ** 2

    def study(name: str) -> optuna.Study:
        sampler = FederatedSampler("federation.toml", exchange=address, name=name, seed=1, every=1)
        return optuna.create_study(sampler=sampler, direction="maximize")

    for peer in ("here/a", "here/b", "here/c"):
        study(peer).optimize(objective, n_trials=5)
    target = study("here")
    target.optimize(objective, n_trials=TRIALS - 1)
    with crossed.recording():
        target.optimize(objective, n_trials=1)
        # the message is sent in a thread of its own
        target.sampler.flush()  # type: ignore[attr-defined]
    return crossed.modules()


def main() -> None:
    if sys.argv[1:2] == ["serve"]:
        return serve()
    rooms = sorted(path.parent for path in (ROOT / "src/fedbo").glob("*/__init__.py"))
    for room in rooms:
        name = str(room.relative_to(ROOT))
        print(f"{name:24} {lines(name):7,}")
    print(f"{'src/fedbo':24} {lines('src/fedbo'):7,}")
    print(f"{'fedbo_paper, benchmarks':24} {lines('src/fedbo_paper', 'benchmarks'):7,}")
    print(f"{'tests':24} {lines('tests'):7,}")
    chain = longest_chain()
    print(f"\nimports: {len(chain)} levels\n  {' > '.join(chain)}")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ |= {"FEDBO_STATE": folder, "FEDBO_HUB_DB": f"sqlite:///{folder}/hub.db"}
        study, hub = crossed_by_a_trial()
    for side, modules in (("a trial, at the study", study), ("a publish, at the hub", hub)):
        print(f"\n{side}: {len(modules)} modules\n  {' '.join(modules)}")


if __name__ == "__main__":
    main()
