"""Measure a hub under the load of 1,000 sites with a trial a minute.

1,000 members publish a compact message and fetch what is new, in turn: 21 requests a second at
random moments, whether the earlier ones were answered or not. The database is a SQLite file, and
what is acknowledged is on the disk. Enough is a p99 under 100 ms on one core.

    python benchmarks/hub.py                       # half a minute
    python benchmarks/hub.py --rate 200            # how far it goes
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx2
import msgspec
import numpy as np

from fedbo.exchange.hub.memberships import Invitation
from fedbo.exchange.hub.wire import MEDIA_TYPE, News, Wanted
from fedbo.federation import Federation
from fedbo.hub import store
from fedbo.message import Message
from fedbo.space import Float
from fedbo.trust import KeyPair

NAME = "load"  # of the federation
FEDERATION = Federation({"x": Float(0, 1), "y": Float(0, 1)}, kind="weights")
TIMEOUT = 60.0  # seconds for one answer


class Site:
    """A member with one agent."""

    def __init__(self, name: str, token: str, keys: KeyPair) -> None:
        self.name, self.sequence, self.cursor, self.keys = name, 0, "", keys
        self.headers = {"Authorization": f"Bearer {token}", "Content-Type": MEDIA_TYPE}

    async def publish(self, client: httpx2.AsyncClient) -> None:
        self.sequence += 1
        omega = np.random.default_rng(self.sequence).standard_normal(FEDERATION.features)
        message = Message.of_weights(
            omega,
            fingerprint=FEDERATION.fingerprint,
            sender=self.name,
            sequence=self.sequence,
            t_n=self.sequence,
        )
        content = self.keys.sign(message).encode()
        answer = await client.put("/messages", content=content, headers=self.headers)
        assert answer.json() == {"out": True}, answer.text

    async def fetch(self, client: httpx2.AsyncClient) -> None:
        body = msgspec.msgpack.encode(Wanted(self.cursor))
        answer = await client.post("/fetch", content=body, headers=self.headers)
        self.cursor = msgspec.msgpack.decode(answer.raise_for_status().content, type=News).cursor


def sites(db: str, count: int) -> list[Site]:
    """Create the federation and its members in the database."""
    engine = store.open_database(db)
    with store.begin(engine) as connection:
        store.create_federation(connection, NAME, FEDERATION, actor="benchmark")
        invited = store.invite(connection, NAME, uses=count, actor="benchmark").invitation
        secret = Invitation.parse(invited).secret
        members = []
        for number in range(count):
            name, keys = f"site-{number}", KeyPair.generate()
            enrolled = store.enrol(connection, secret, name, keys.public)
            members.append(Site(name, enrolled.token, keys))
    engine.dispose()
    return members


async def load(address: str, members: list[Site], rate: float, seconds: float) -> list[float]:
    """Send requests at random moments; return how long each took, in seconds."""
    rng, taken, running = random.Random(0), list[float](), set[asyncio.Task[None]]()
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
    place = f"{address}/v1/federations/{NAME}"
    async with httpx2.AsyncClient(base_url=place, timeout=TIMEOUT, limits=limits) as client:

        async def request(site: Site, is_publish: bool) -> None:
            began = time.perf_counter()
            await (site.publish(client) if is_publish else site.fetch(client))
            taken.append(time.perf_counter() - began)

        begin, due = time.perf_counter(), 0.0
        for number in range(int(rate * seconds)):
            due += rng.expovariate(rate)
            await asyncio.sleep(max(0.0, begin + due - time.perf_counter()))
            site = members[number // 2 % len(members)]
            task = asyncio.create_task(request(site, number % 2 == 0))
            running.add(task)
            task.add_done_callback(running.discard)
        await asyncio.gather(*running)
        print(f"{len(taken) / (time.perf_counter() - begin):.1f} requests a second were answered")
    return taken


def main() -> None:
    """Run the load, and print throughput and latency."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--members", type=int, default=1000)
    parser.add_argument("--rate", type=float, default=21.0, help="requests a second")
    parser.add_argument("--seconds", type=float, default=30.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        db = f"sqlite:///{Path(folder, 'hub.db')}"
        members = sites(db, options.members)
        environ = os.environ | {"FEDBO_HUB_DB": db, "FEDBO_HUB_PORT": "0", "FEDBO_HUB_RATE": "0"}
        with open(Path(folder, "hub.log"), "wb") as log:
            command = [sys.executable, "-m", "fedbo", "hub", "serve"]
            hub = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=log)
        try:
            assert hub.stdout is not None
            address = hub.stdout.readline().decode().removeprefix("fedbo hub: ").strip()
            asyncio.run(load(address, members[:10], options.rate, 2.0))  # warm
            taken = asyncio.run(load(address, members, options.rate, options.seconds))
        finally:
            hub.terminate()
            hub.wait()
    p50, p99 = np.percentile(taken, [50, 99]) * 1e3
    print(f"{len(taken)} requests: p50 {p50:.1f} ms, p99 {p99:.1f} ms")


if __name__ == "__main__":
    main()
