"""A fleet on Flower

Eight sites tune how they read handwritten digits, and another eight join later. Flower carries
their messages. Here it simulates the sites; the same app runs on real machines.
"""

import os
import runpy
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import fedbo

RUNS = (8, 16)  # quick: (3,)
ROUNDS = 4  # quick: 2

# %%
# Flower is used by its commands. What they print goes into a file. Flower starts a server on this
# machine and sends it the runs; these settings give it a free port, and let it install nothing.

folder = Path(tempfile.mkdtemp())
log = folder / "flower.log"
with socket.create_server(("127.0.0.1", 0)) as free:
    port = str(free.getsockname()[1])
env = os.environ | {
    "FLWR_HOME": str(folder / "flower"),
    "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": port,
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_TELEMETRY_ENABLED": "0",
    "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    "PYTHONWARNINGS": "ignore",
}


def run(*command):
    with log.open("a") as file:
        subprocess.run(command, env=env, stdout=file, stderr=file, check=True)


# %%
# `fedbo flower new` writes an app that works. Two of its files are changed. The first one says
# which parameters are tuned.

app = folder / "digits"
run("fedbo", "flower", "new", app)
federation = fedbo.Federation(
    {
        "C": fedbo.Float(1e-4, 1e4, log=True),
        "gamma": fedbo.Float(1e-6, 1e2, log=True),
        "components": fedbo.Int(1, 60),
    },
)
federation.save(app / "digits" / "federation.toml")

# %%
# The second one says what a site does with them. Each site has 100 digits of its own. (The `seed`
# is for simulations: it makes this page repeatable.)

(app / "digits" / "client_app.py").write_text("""
from pathlib import Path

from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC

from fedbo.flower import client_app

IMAGES, DIGITS = load_digits(return_X_y=True)


def accuracy(site):
    mine = slice(100 * site, 100 * site + 100)

    def score(params):
        reduced = PCA(params["components"], random_state=0)
        model = make_pipeline(reduced, SVC(C=params["C"], gamma=params["gamma"]))
        return cross_val_score(model, IMAGES[mine], DIGITS[mine], cv=3).mean()

    return score


def objective(context):
    return accuracy(context.node_config["partition-id"])


app = client_app(Path(__file__).with_name("federation.toml"), objective, seed=0)
""")

# %%
# Flower runs the app twice, with eight sites and then with sixteen. In each round, a site runs
# three trials and sends a message of about 200 bytes. What it has learnt stays in its folder.
# At the end, the server is stopped.

try:
    for nodes in RUNS:
        sites = f"num-supernodes={nodes}"
        config = f"rounds={ROUNDS} folder='{folder / 'sites'}'"
        run("flwr", "run", app, "--stream", "--federation-config", sites, "--run-config", config)
finally:
    subprocess.run(f"kill $(lsof -t -i tcp:{port} -s tcp:listen)", shell=True)

for line in log.read_text().splitlines():
    if "messages held" in line:
        print(line.partition(":")[2].strip())

# %%
# A site alone is the same agent with the same seed, which hears nobody. Only a simulation can draw
# this: in a real fleet, no score leaves its site.

accuracy = runpy.run_path(str(app / "digits" / "client_app.py"))["accuracy"]
length = 3 * ROUNDS  # trials of a site in one run
best = {"together": {}, "alone": {}}
for path in sorted((folder / "sites").rglob("agent.fedbo")):
    agent = fedbo.Agent.load(path)
    site = int(agent.name.removeprefix("site-"))
    alone, score = fedbo.Agent(federation, seed=site), accuracy(site)
    for _ in range(length):
        trial = alone.ask()
        alone.tell(trial, score(trial.params))
    for way, tuned in {"together": agent, "alone": alone}.items():
        scores = [trial.score for trial in tuned.trials[:length]]
        best[way][site] = np.maximum.accumulate(scores)

# %%
# These are means over eight sites; grey lines are the same sites alone. In the first round, the
# first sites have not heard anything. From the second on, they are ahead. Sites that join later
# (dashed) begin with what the first ones recommend: their first trial is better than the best of 12
# alone.

for number, nodes in enumerate(RUNS):
    joined = range(RUNS[number - 1] if number else 0, nodes)
    for way, colour in {"alone": "grey", "together": "C0"}.items():
        mean = np.mean([best[way][site] for site in joined], axis=0)
        shown = (f"trial {t}: {mean[t - 1]:.3f}  " for t in (1, 3, 6, length))
        label = f"sites {joined[0]} to {joined[-1]}, {way}"
        print(f"{label:23}", *shown)
        style = "--" if number else "-"
        plt.plot(np.arange(length) + 1, mean, style, color=colour, label=label)
plt.xticks([1, 3, 6, 9, 12])
plt.xlabel("trials of a site")
plt.ylabel("best accuracy so far")
plt.legend()
plt.show()
