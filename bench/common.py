"""What the scripts beside it share: where things are, which machine this is, what fio gives."""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
DATA = TARGET / "bench-data"
MIB = 1 << 20


def machine():
    """The line under which figures are kept."""
    cpuinfo = Path("/proc/cpuinfo")
    model = re.search(r"model name\s*: (.*)", cpuinfo.read_text()) if cpuinfo.exists() else None
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout
    return (
        f"{model.group(1) if model else platform.machine()}, {os.cpu_count()} CPUs, Linux {platform.release()}, "
        f"{time.strftime('%Y-%m-%d')}, commit {commit.strip() or 'unknown'}, load {os.getloadavg()[0]:.1f} at the start"
    )


def fio(folder, mode, block, depth, size_mib, seconds, *more):
    """The job's result on the file system of `folder`, O_DIRECT by io_uring; None where there is no fio."""
    if shutil.which("fio") is None:
        print("SKIP: fio is not installed; its rows are left out", file=sys.stderr)
        return None
    command = ["fio", "--name=limit", f"--directory={folder}", f"--rw={mode}", f"--bs={block}", f"--iodepth={depth}"]
    command += ["--ioengine=io_uring", "--direct=1", f"--size={size_mib}M", "--output-format=json", "--numjobs=1"]
    command += ["--time_based", f"--runtime={seconds}"] if seconds else ["--end_fsync=1"]
    result = json.loads(subprocess.run([*command, *more], capture_output=True, text=True, check=True).stdout)
    job = result["jobs"][0]["read" if "read" in mode else "write"]
    for file in Path(folder).glob("limit.*"):
        if not mode.endswith("read"):
            file.unlink()
    return job
